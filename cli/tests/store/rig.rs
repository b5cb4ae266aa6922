//! Stores on a real file system, ways to damage them, and the program.

use crate::support::shape;
use kvtide::fingerprint::{Codec, StoreId};
use kvtide::io::{Disk, DiskOptions, IoBuffer, IoMemory, IoOperation, IoWork, open_disk};
use kvtide::key::Key;
use kvtide::store::format::{HeaderIdentity, HeaderStamp};
use kvtide::store::{Entry, Landed, Opened, Recovery, Store, StoreOptions, TagSpace};
use kvtide::units::{BlockCount, ByteCount, GroupIndex, SlotIndex, TenantId, TokenCount};
use kvtide_kernels::checksum;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Slots of every store here.
pub(crate) const SLOT_COUNT: u32 = 6;

/// Bytes of a slot: a header page and one page of payload.
pub(crate) const SLOT_BYTES: u64 = 8192;

/// Bytes of a store's files: two copies, slots, and an index of two pages.
pub(crate) const STORE_BYTES: u64 = 2 * 4096 + 6 * SLOT_BYTES + 2 * 4096;

const SPACE: TagSpace = TagSpace::new(9);

/// A root of its own, empty.
pub(crate) fn root(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stores").join(name);
    if root.exists() {
        fs::remove_dir_all(&root).expect("the build folder can be written");
    }
    fs::create_dir_all(&root).expect("the build folder can be written");
    root
}

pub(crate) fn store_id(number: u8) -> StoreId {
    StoreId::from_bytes([number; 16])
}

/// Returns the name of a store below its root.
pub(crate) fn name(number: u8) -> String {
    format!("0/{}", store_id(number))
}

/// Returns the key of a chunk.
pub(crate) fn key(chunk: u32) -> Key {
    Key::from_u128(u128::from(checksum::mix(u64::from(chunk) + 1)) << 64 | u128::from(chunk))
}

/// Returns a chunk's slot image, but for its stamp.
fn image(chunk: u32) -> Vec<u8> {
    let words: Vec<u64> =
        (0..128).map(|index| checksum::mix(u64::from(chunk) << 8 | index)).collect();
    let identity = HeaderIdentity {
        key: key(chunk),
        parent: chunk.checked_sub(1).map(key),
        group: GroupIndex::new(0),
        codec: Codec::Raw,
        depth: chunk,
        blocks: BlockCount::new(2),
        tokens: TokenCount::new(32),
        payload: ByteCount::new(4096),
        part_count: 1,
        tenant: TenantId::new(0),
        expires_s: 0,
        recompute_us: 0,
    };
    let mut image = vec![0; 8192];
    image[..HeaderIdentity::BYTES].copy_from_slice(&identity.encode().expect("an identity"));
    let sum = checksum::seal(checksum::sum(&words, 0), key(chunk).low_u64());
    image[1024..1032].copy_from_slice(&sum.to_le_bytes());
    for (place, word) in image[4096..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    image
}

/// An open store, as an engine has it.
pub(crate) struct Engine {
    disk: Box<dyn Disk>,
    store: Store,
    entries: Vec<Entry>,
}

impl Engine {
    /// Opens a store, or makes it.
    pub(crate) fn open(root: &Path, number: u8) -> Self {
        let mut disk = open_disk(&DiskOptions::default()).expect("a disk");
        let mut options = StoreOptions::new(root, store_id(number), shape(), SLOT_COUNT);
        options.instance = Some(0);
        let Opened { store, recovery, .. } = Store::open(&mut *disk, &options).expect("it opens");
        let Recovery::Ready(entries) = recovery else { panic!("to be scanned: {recovery:?}") };
        Self { disk, store, entries }
    }

    /// Opens a store, and says why it must be scanned.
    pub(crate) fn scan_reason(root: &Path, number: u8) -> String {
        let mut disk = open_disk(&DiskOptions::default()).expect("a disk");
        let options = StoreOptions::new(root, store_id(number), shape(), SLOT_COUNT);
        let Opened { store, recovery, .. } = Store::open(&mut *disk, &options).expect("it opens");
        store.abandon(&mut *disk);
        match recovery {
            Recovery::Ready(entries) => format!("{} chunks", entries.len()),
            Recovery::ScanNeeded(reason) => reason.to_string(),
        }
    }

    /// Writes chunks 0 to `count`, each to the slot of its number.
    pub(crate) fn write(&mut self, count: u32) {
        for chunk in 0..count {
            self.write_chunk(chunk, chunk);
        }
    }

    /// Writes a chunk to a slot.
    pub(crate) fn write_chunk(&mut self, chunk: u32, slot: u32) {
        let Self { disk, store, entries } = self;
        let begin = store.begin_run(SPACE);
        begin.run(store, &mut **disk).expect("the drive is good");
        let slot = SlotIndex::new(slot);
        let mut image = image(chunk);
        let start = image.first_chunk().expect("an image has a header page");
        let write = store.begin_write(slot, start, 1_790_000_000).expect("a slot");
        image[HeaderStamp::OFFSET_BYTES..4096].copy_from_slice(&write.stamp);
        let mut buffer = IoBuffer::zeroed(2);
        buffer.bytes_mut().copy_from_slice(&image);
        let work =
            IoWork::Write { offset: store.slot_offset(slot), memory: IoMemory::Buffer(buffer) };
        let operation = IoOperation { tag: 0, file: store.data_file(), work };
        let report = kvtide::io::run(&mut **disk, vec![operation]).pop().expect("one report");
        assert_eq!(store.end_write(slot, &report.outcome), Landed::Counts);
        entries.push(Entry {
            slot,
            key: key(chunk),
            parent: chunk.checked_sub(1).map(key),
            generation: write.generation,
            tenant: TenantId::new(0),
            depth: chunk,
            blocks: BlockCount::new(2),
            expires_s: 0,
        });
    }

    /// Closes the store as an engine does that ends well.
    pub(crate) fn close(mut self) {
        let closed = self.store.close(&mut *self.disk, self.entries).expect("the drive is good");
        assert!(closed.is_clean);
    }

    /// Leaves the store as an engine does that is killed.
    pub(crate) fn kill(mut self) {
        self.store.abandon(&mut *self.disk);
    }
}

/// Makes a store of `chunks` chunks and closes it; returns its directory.
pub(crate) fn closed_store(root: &Path, number: u8, chunks: u32) -> PathBuf {
    let mut engine = Engine::open(root, number);
    engine.write(chunks);
    engine.close();
    root.join(name(number))
}

/// Makes a store of `chunks` chunks that is not closed; returns its directory.
pub(crate) fn killed_store(root: &Path, number: u8, chunks: u32) -> PathBuf {
    let mut engine = Engine::open(root, number);
    engine.write(chunks);
    engine.kill();
    root.join(name(number))
}

/// Changes one byte of a file.
pub(crate) fn damage(directory: &Path, file: &str, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(directory.join(file));
    let file = file.expect("the file is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the file is that long");
    file.write_all_at(&[byte[0] ^ 0x40], offset).expect("it can be written");
}

/// Returns every file below a directory with its bytes.
pub(crate) fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            files.push((path, bytes));
        }
    }
    files.sort();
    files
}

pub(crate) fn run(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvtide"));
    command.args(arguments).arg(directory).output().expect("the program runs")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// Runs the program with `--json`; returns its exit code, its document, and its error without
/// `error: `.
pub(crate) fn json(arguments: &[&str], directory: &Path) -> (Option<i32>, Value, String) {
    let output = run(&[arguments, &["--json"]].concat(), directory);
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let error = text(&output.stderr).trim_end();
    let error = error.strip_prefix("error: ").unwrap_or(error).to_owned();
    assert!(!error.contains('\n'), "errors have one line: {error}");
    (output.status.code(), document, error)
}

/// Checks that the program ends with a code, one line of error and nothing else.
pub(crate) fn assert_refused(output: &Output, code: i32, expected: &str) {
    assert_eq!(text(&output.stderr), format!("error: {expected}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(code));
}

/// How a report names this process as the holder of a lock: not at all where the system hides it.
pub(crate) fn holder() -> (Value, String) {
    let process = std::process::id();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let is_told = locks
        .lines()
        .any(|line| line.split_ascii_whitespace().any(|field| field == process.to_string()));
    if is_told {
        (process.into(), format!(" by process {process}"))
    } else {
        (Value::Null, String::new())
    }
}
