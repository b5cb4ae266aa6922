//! What KV a token has: layers, planes and rows of known models, and smaller ones like them.
//!
//! A geometry is scaled down by shortening the rows. The number of planes stays, so a chunk keeps
//! its fragments, and what the copies do per fragment is what they do for the model itself.
//!
//! Sizes are those of each model's `config.json` in bf16: layers x 2 x KV heads x head size x 2
//! bytes a token, and for `DeepSeek`'s MLA layers x (512 + 64) x 2.

use crate::layout::{
    Attention, ENGINE_ALIGN_BYTES, ElementType, GroupBuilder, InnerOrder, Layout, LayoutError,
    Paging, Plane, PlaneContent,
};
use crate::units::{BlockCount, ByteCount, TokenCount};
use std::fmt;
use std::str::FromStr;

/// Alignment of each plane's first block, in bytes.
const PLANE_ALIGN_BYTES: u64 = 4096;

/// The KV of one token: so many planes of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    model: &'static str,
    layers: u32,
    attention: LayerKind,
    /// Bytes of one token in one plane of the model itself.
    whole_row: u32,
    /// Bytes of one token in one plane: at most `whole_row`.
    row: u32,
}

/// What a layer holds for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    /// Keys and values, a plane each.
    KeyValue,
    /// One latent row.
    Latent,
}

/// No geometry has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown geometry; give one of {}", Geometry::names())]
pub struct UnknownGeometry;

/// The bytes asked for are not planes times whole rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} bytes a token cannot be had of {model}: it has {planes} planes, whose rows are \
     multiples of {ENGINE_ALIGN_BYTES} bytes and at most {whole_row}; the nearest is {nearest}"
)]
pub struct BytesPerTokenError {
    /// Bytes asked for.
    pub wanted: u64,
    /// The model.
    pub model: &'static str,
    /// Its planes.
    pub planes: u32,
    /// Bytes of its rows.
    pub whole_row: u32,
    /// The nearest bytes that can be had.
    pub nearest: u64,
}

impl Geometry {
    /// Llama 3 8B: 32 layers of 8 KV heads of 128, so 131,072 bytes a token.
    pub const LLAMA_3_8B: Self = Self::key_value("Llama-3-8B", 32);
    /// Llama 3 70B: 80 layers of 8 KV heads of 128, so 327,680 bytes a token.
    pub const LLAMA_3_70B: Self = Self::key_value("Llama-3-70B", 80);
    /// Qwen3 8B: 36 layers of 8 KV heads of 128, so 147,456 bytes a token.
    pub const QWEN_3_8B: Self = Self::key_value("Qwen3-8B", 36);
    /// DeepSeek V3: 61 layers of one latent row of 576 elements, so 70,272 bytes a token.
    pub const DEEPSEEK_V3: Self = Self {
        model: "DeepSeek-V3",
        layers: 61,
        attention: LayerKind::Latent,
        whole_row: 576 * 2,
        row: 576 * 2,
    };

    /// Every geometry.
    pub const ALL: [Self; 4] =
        [Self::LLAMA_3_8B, Self::LLAMA_3_70B, Self::QWEN_3_8B, Self::DEEPSEEK_V3];

    /// Keys and values of 8 heads of 128 elements in bf16.
    const fn key_value(model: &'static str, layers: u32) -> Self {
        let row = 8 * 128 * 2;
        Self { model, layers, attention: LayerKind::KeyValue, whole_row: row, row }
    }

    fn names() -> String {
        Self::ALL.map(|geometry| geometry.model).join(", ")
    }

    /// Returns the model's name.
    pub const fn model(&self) -> &'static str {
        self.model
    }

    /// Returns the planes: two a layer, or one of latent rows.
    pub const fn plane_count(&self) -> u32 {
        match self.attention {
            LayerKind::KeyValue => 2 * self.layers,
            LayerKind::Latent => self.layers,
        }
    }

    /// Returns the bytes of one token in one plane.
    pub const fn row(&self) -> ByteCount {
        ByteCount::new(self.row as u64)
    }

    /// Returns the bytes of one token in all planes.
    pub const fn bytes_per_token(&self) -> ByteCount {
        ByteCount::new(self.plane_count() as u64 * self.row as u64)
    }

    /// Whether the rows are shorter than the model's.
    pub const fn is_scaled(&self) -> bool {
        self.row < self.whole_row
    }

    /// Shortens the rows so that a token has `bytes_per_token` bytes in all planes together.
    ///
    /// ```
    /// use kvtide::replay::Geometry;
    /// use kvtide::units::ByteCount;
    ///
    /// let small = Geometry::LLAMA_3_8B.scaled_to(ByteCount::new(1024))?;
    /// assert_eq!((small.plane_count(), small.row().get()), (64, 16));
    /// # Ok::<(), kvtide::replay::BytesPerTokenError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BytesPerTokenError`] names the nearest that can be had, when a row would not be a
    /// multiple of 4 bytes, or would be longer than the model's.
    #[expect(clippy::missing_panics_doc, reason = "a row is at most the model's")]
    pub fn scaled_to(&self, bytes_per_token: ByteCount) -> Result<Self, BytesPerTokenError> {
        let wanted = bytes_per_token.get();
        let planes = u64::from(self.plane_count());
        let step = planes * ENGINE_ALIGN_BYTES;
        let whole = planes * u64::from(self.whole_row);
        let nearest = (wanted.saturating_add(step / 2) / step * step).clamp(step, whole);
        if nearest != wanted {
            let (model, whole_row) = (self.model, self.whole_row);
            let planes = self.plane_count();
            return Err(BytesPerTokenError { wanted, model, planes, whole_row, nearest });
        }
        let row = u32::try_from(wanted / planes).expect("at most the model's row, which is a u32");
        Ok(Self { row, ..*self })
    }

    /// Returns the bytes of one block in one plane.
    pub const fn fragment(&self, block_tokens: TokenCount) -> ByteCount {
        ByteCount::new(self.row as u64 * block_tokens.get() as u64)
    }

    /// Returns the bytes of one block in all planes; at most 2^63.
    pub const fn block(&self, block_tokens: TokenCount) -> ByteCount {
        ByteCount::new(self.plane_count() as u64 * self.fragment(block_tokens).get())
    }

    /// Returns the bytes from one plane's first block to the next plane's.
    fn plane_stride(&self, block_tokens: TokenCount, block_count: BlockCount) -> u64 {
        let bytes = self.fragment(block_tokens).get().saturating_mul(block_count.get().into());
        bytes.checked_next_multiple_of(PLANE_ALIGN_BYTES).unwrap_or(u64::MAX)
    }

    /// Returns the bytes of a pool of `block_count` blocks.
    pub fn pool(&self, block_tokens: TokenCount, block_count: BlockCount) -> ByteCount {
        let stride = self.plane_stride(block_tokens, block_count);
        ByteCount::new(stride.saturating_mul(self.plane_count().into()))
    }

    /// Lays out a pool of `block_count` blocks at `base_address`, plane after plane. One block is
    /// one chunk.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] when a block is too large for a slot, or the pool for the address space.
    pub fn layout(
        &self,
        base_address: u64,
        block_tokens: TokenCount,
        block_count: BlockCount,
    ) -> Result<Layout, LayoutError> {
        let paging = Paging {
            block_tokens,
            blocks_per_chunk: BlockCount::new(1),
            block_count,
            attention: Attention::Full,
        };
        let stride = self.plane_stride(block_tokens, block_count);
        let (inner_order, contents): (_, &[PlaneContent]) = match self.attention {
            LayerKind::KeyValue => {
                (InnerOrder::TokensHeads, &[PlaneContent::Key, PlaneContent::Value])
            }
            LayerKind::Latent => (InnerOrder::Latent, &[PlaneContent::Latent]),
        };
        let fragment = self.fragment(block_tokens);
        let names = (0..self.layers)
            .flat_map(|layer| contents.iter().map(move |content| (layer, *content)));
        let group = GroupBuilder::new(paging, ElementType::Bf16, inner_order);
        let group = names.zip(0_u64..).fold(group, |group, ((layer, content), number)| {
            let base_address = base_address.saturating_add(stride.saturating_mul(number));
            group.plane(Plane { layer, content, base_address, block_stride: fragment, fragment })
        });
        Layout::builder().group(group).build()
    }
}

impl FromStr for Geometry {
    type Err = UnknownGeometry;

    /// Finds a geometry by its model's name; letter case does not count.
    fn from_str(text: &str) -> Result<Self, UnknownGeometry> {
        let is_named = |geometry: &Self| geometry.model.eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(is_named).ok_or(UnknownGeometry)
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockCount, ByteCount, BytesPerTokenError, Geometry, TokenCount, UnknownGeometry};

    #[test]
    fn a_token_of_each_model_has_its_published_bytes() {
        let bytes = Geometry::ALL.map(|geometry| geometry.bytes_per_token().get());
        assert_eq!(bytes, [131_072, 327_680, 147_456, 70_272]);
    }

    #[test]
    fn geometries_are_found_by_name_in_any_case() {
        assert_eq!("llama-3-8b".parse(), Ok(Geometry::LLAMA_3_8B));
        assert_eq!("DeepSeek-V3".parse(), Ok(Geometry::DEEPSEEK_V3));
        assert_eq!("gpt".parse::<Geometry>(), Err(UnknownGeometry));
        let names = "unknown geometry; give one of Llama-3-8B, Llama-3-70B, Qwen3-8B, DeepSeek-V3";
        assert_eq!(UnknownGeometry.to_string(), names);
    }

    #[test]
    fn scaling_keeps_the_planes_and_names_the_nearest_size_that_can_be_had() {
        for geometry in Geometry::ALL {
            let planes = u64::from(geometry.plane_count());
            let whole = geometry.bytes_per_token().get();
            for row in [4, 16, 64] {
                let scaled = geometry.scaled_to(ByteCount::new(planes * row)).unwrap();
                assert_eq!(u64::from(scaled.plane_count()), planes);
                assert_eq!(scaled.row().get(), row);
                assert!(scaled.is_scaled());
            }
            assert_eq!(geometry.scaled_to(ByteCount::new(whole)), Ok(geometry));
            let step = planes * 4;
            for (wanted, expected) in [
                (0, step),
                (1, step),
                (3 * step - 1, 3 * step),
                (3 * step + 1, 3 * step),
                (whole + 1, whole),
                (u64::MAX, whole),
            ] {
                let refused = geometry.scaled_to(ByteCount::new(wanted));
                let BytesPerTokenError { nearest, .. } = refused.unwrap_err();
                assert_eq!(nearest, expected, "{geometry} at {wanted}");
                assert!(geometry.scaled_to(ByteCount::new(nearest)).is_ok());
            }
        }
    }

    #[test]
    fn a_laid_out_pool_fills_the_bytes_that_were_announced() {
        let (tokens, blocks) = (TokenCount::new(16), BlockCount::new(7));
        for geometry in Geometry::ALL {
            let base = 1 << 20;
            let layout = geometry.layout(base, tokens, blocks).unwrap();
            let group = &layout.groups()[0];
            assert_eq!(group.planes().len(), geometry.plane_count() as usize);
            let fragments: u64 = group.planes().iter().map(|plane| plane.fragment.get()).sum();
            assert_eq!(fragments, geometry.block(tokens).get());
            assert_eq!(fragments, 16 * geometry.bytes_per_token().get());
            let end = base + geometry.pool(tokens, blocks).get();
            assert!(group.planes().iter().all(|plane| {
                plane.base_address >= base && plane.base_address + 7 * plane.fragment.get() <= end
            }));
        }
    }
}
