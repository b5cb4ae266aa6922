//! What the simulated disk promises to those who prove their promises on it.

use super::{SimDrive, SimView};
use crate::io::{Files, IoBuffer, IoMemory, IoOperation, IoWork, OpenMode, run};
use std::path::Path;

#[test]
fn smoke() {
    let drive = SimDrive::new(1);
    let mut disk = drive.disk(2);
    disk.create_directory(Path::new("/a/b")).unwrap();
    let file = disk.open(Path::new("/a/b/data"), OpenMode::Create).unwrap().file;
    let mut buffer = IoBuffer::zeroed(2);
    buffer.bytes_mut().fill(7);
    let write = IoOperation {
        tag: 1,
        file,
        work: IoWork::Write { offset: 4096, memory: IoMemory::Buffer(buffer) },
    };
    let done = run(&mut disk, vec![write]);
    assert_eq!(done[0].outcome, Ok(()));
    let path = Path::new("a/b/data");
    assert_eq!(drive.bytes(path, SimView::Durable), None);
    let done = run(&mut disk, vec![IoOperation { tag: 0, file, work: IoWork::Sync }]);
    assert_eq!(done[0].outcome, Ok(()));
    for directory in ["/", "/a", "/a/b"] {
        disk.sync_directory(Path::new(directory)).unwrap();
    }
    let mut expected = vec![0; 4096];
    expected.resize(12288, 7);
    assert_eq!(drive.bytes(path, SimView::Durable).unwrap(), expected);
    drive.cut_power();
    assert!(disk.list(Path::new("/")).is_err());
    assert_eq!(drive.bytes(path, SimView::Volatile).unwrap(), expected);
}
