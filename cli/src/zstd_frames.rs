//! Decodes a zstd file: frames one after another, each with its checksum compared.
//!
//! The decoder library reads one frame and compares no checksum; files written in parallel or
//! joined by `cat` have several, and skippable ones between them (RFC 8878, section 3.1).

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, Read};

/// Little-endian magic of a frame.
const FRAME_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Little-endian magic of a skippable frame, whose first byte has any low half.
const SKIPPABLE_MAGIC: [u8; 4] = 0x184d_2a50_u32.to_le_bytes();

/// Whether a file that starts with `magic` is zstd-compressed.
pub(crate) fn is_zstd(magic: &[u8]) -> bool {
    let is_skippable = |first: u8| first & 0xf0 == SKIPPABLE_MAGIC[0];
    match magic {
        [first, rest @ ..] if rest == &SKIPPABLE_MAGIC[1..] => is_skippable(*first),
        _ => magic == FRAME_MAGIC,
    }
}

/// Why zstd data cannot be decoded.
#[derive(Debug, thiserror::Error)]
enum ZstdError {
    /// The data is damaged or cut off.
    #[error("its zstd data is damaged or cut off; fetch the file again")]
    Damaged(#[source] FrameDecoderError),
    /// The data needs a window or a dictionary that the decoder does not have.
    #[error("its zstd data was compressed with --long or a dictionary; compress it without")]
    Unsupported(#[source] FrameDecoderError),
    /// A frame's content is not what was compressed.
    #[error(
        "its zstd checksum is {found:#010x}, not {stated:#010x}: the data is damaged; \
         fetch the file again"
    )]
    WrongChecksum { stated: u32, found: u32 },
}

impl From<FrameDecoderError> for ZstdError {
    fn from(error: FrameDecoderError) -> Self {
        match error {
            FrameDecoderError::WindowSizeTooBig { .. }
            | FrameDecoderError::DictNotProvided { .. } => Self::Unsupported(error),
            _ => Self::Damaged(error),
        }
    }
}

impl From<ZstdError> for io::Error {
    fn from(error: ZstdError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads what the zstd frames of a source hold, one after another.
pub(crate) struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Starts the next frame; returns false at the end of the source.
    fn start_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(length.into())?,
                Err(error) => return Err(ZstdError::from(error).into()),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(ZstdError::from(FrameDecoderError::FailedToSkipFrame).into());
        }
        Ok(())
    }

    /// Ends a frame whose content has been read.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let stated = self.decoder.get_checksum_from_data();
        let found = self.decoder.get_calculated_checksum();
        match (stated, found) {
            (Some(stated), Some(found)) if stated != found => {
                Err(ZstdError::WrongChecksum { stated, found }.into())
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_in_frame || self.start_frame()? {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(ZstdError::from)?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            self.end_frame()?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{ZstdFrames, is_zstd};
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::{self, Read};

    fn compressed(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn decoded(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        ZstdFrames::new(bytes).read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn frames_are_told_by_their_first_bytes() {
        assert!(is_zstd(&compressed(b"x")[..4]));
        assert!(is_zstd(&[0x5f, 0x2a, 0x4d, 0x18]));
        assert!(!is_zstd(&[0x6f, 0x2a, 0x4d, 0x18]));
        assert!(!is_zstd(b"{\"in"));
        assert!(!is_zstd(b""));
        assert!(!is_zstd(&[0x28, 0xb5]));
    }

    #[test]
    fn frames_and_skippable_frames_are_read_one_after_another() {
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 7, 7, 7];
        let [one, none, two] = [b"one ".as_slice(), b"", b"two"].map(compressed);
        let file = [&skippable, one.as_slice(), &none, &skippable, &two].concat();
        assert_eq!(decoded(&file).unwrap(), b"one two");
        assert!(decoded(&skippable[..9]).is_err());
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(text in prop::collection::vec(0_u8..4, 0..5000)) {
            prop_assert_eq!(decoded(&compressed(&text)).unwrap(), text);
        }

        #[test]
        fn a_file_cut_off_is_refused(
            text in prop::collection::vec(any::<u8>(), 1..500),
            at: prop::sample::Index,
        ) {
            let file = compressed(&text);
            let cut = at.index(file.len() - 1) + 1;
            prop_assert!(decoded(&file[..cut]).is_err());
        }

        #[test]
        fn a_changed_byte_is_refused_or_without_effect(
            text in prop::collection::vec(0_u8..4, 0..500),
            at: prop::sample::Index,
            flip in 1_u8..,
        ) {
            let mut file = compressed(&text);
            let at = at.index(file.len());
            file[at] ^= flip;
            if let Ok(read) = decoded(&file) {
                prop_assert_eq!(read, text);
            }
        }
    }
}
