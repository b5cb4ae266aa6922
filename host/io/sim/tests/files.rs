//! Directories, names, locks, room: what programs see while the power stays on.

use super::*;
use crate::io::sim::SimClock;
use crate::io::{DirectoryEntry, EntryKind, FileCall, Lock, Space};
use crate::units::ByteCount;
use std::io::ErrorKind;

fn entry(name: &str, kind: EntryKind) -> DirectoryEntry {
    DirectoryEntry { name: name.to_owned(), kind }
}

#[test]
fn directories_list_their_entries_by_name() {
    let drive = SimDrive::new(1);
    let mut disk = drive.disk(1);
    disk.create_directory(Path::new("/a/b/c")).unwrap();
    disk.create_directory(Path::new("/a/b")).unwrap();
    disk.open(Path::new("/a/z"), OpenMode::Create).unwrap();
    drive.plant_link(Path::new("/a/link"));
    let expected = [
        entry("b", EntryKind::Directory),
        entry("link", EntryKind::Other),
        entry("z", EntryKind::File),
    ];
    assert_eq!(disk.list(Path::new("/a")).unwrap(), expected);
    assert_eq!(disk.list(Path::new("a/./")).unwrap(), expected, "one root");
    let missing = disk.list(Path::new("/x")).unwrap_err();
    assert_eq!((missing.call, missing.kind), (FileCall::List, ErrorKind::NotFound));
    assert_eq!(missing.path, Path::new("/x"));
    assert!(disk.create_directory(Path::new("/a/z/y")).is_err(), "a file is no directory");
    assert!(disk.create_directory(Path::new("/a/z")).is_err());
}

#[test]
fn removing_takes_files_and_empty_directories_and_what_is_not_there() {
    let (_drive, mut disk, file) = drive_and_file(1);
    let store = Path::new("/store");
    let refused = disk.remove_directory(store).unwrap_err();
    assert_eq!((refused.call, refused.kind), (FileCall::Remove, ErrorKind::DirectoryNotEmpty));
    assert!(disk.remove_file(store).is_err());
    disk.remove_file(data()).unwrap();
    disk.remove_file(data()).unwrap();
    succeed(&mut disk, write(0, file, 0, 1, 1));
    assert_eq!(read_back(&mut disk, file, 0, 1), (Ok(()), vec![1; 4096]), "open files live on");
    disk.remove_directory(store).unwrap();
    disk.remove_directory(store).unwrap();
    assert_eq!(disk.list(Path::new("/")), Ok(Vec::new()));
}

#[test]
fn opening_follows_its_mode_and_never_a_link() {
    let drive = SimDrive::new(1);
    let mut disk = drive.disk(1);
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        let missing = disk.open(data(), mode).unwrap_err();
        assert_eq!((missing.call, missing.kind), (FileCall::Open, ErrorKind::NotFound));
    }
    assert_eq!(disk.open(data(), OpenMode::Create).unwrap_err().kind, ErrorKind::NotFound);
    drive.plant(data(), &[3; 5000]);
    for mode in [OpenMode::Existing, OpenMode::ReadOnly, OpenMode::Create] {
        let opened = disk.open(data(), mode).unwrap();
        assert_eq!((opened.length.get(), opened.buffered), (5000, None));
    }
    drive.plant_link(Path::new("/store/link"));
    assert!(disk.open(Path::new("/store/link"), OpenMode::Create).is_err());
    assert!(disk.open(Path::new("/store"), OpenMode::ReadOnly).is_err());
    assert!(disk.open(Path::new("/store/../data"), OpenMode::Create).is_err());
}

#[test]
fn one_open_file_has_the_lock_until_it_is_closed_or_the_power_goes() {
    let (drive, mut disk, file) = drive_and_file(1);
    let mut other = drive.disk(2);
    let same = other.open(data(), OpenMode::Existing).unwrap().file;
    let again = disk.open(data(), OpenMode::Existing).unwrap().file;
    assert_eq!(disk.lock(file), Ok(Lock::Taken));
    assert_eq!(disk.lock(file), Ok(Lock::Taken));
    let held = Ok(Lock::Held { process: Some(disk.number()) });
    assert_eq!(other.lock(same), held);
    assert_eq!(disk.lock(again), held, "another open file of the same program is another");
    disk.close(file);
    assert_eq!(other.lock(same), Ok(Lock::Taken));
    drive.cut_power();
    let mut after = drive.disk(3);
    let same = after.open(data(), OpenMode::Existing).unwrap().file;
    assert_eq!(after.lock(same), Ok(Lock::Taken));
    assert!(other.lock(same).is_err(), "a dead handle takes nothing");
}

#[test]
fn a_lock_outlives_its_file_until_the_last_operation_ends() {
    let (drive, mut disk, file) = drive_and_file(1);
    let mut other = drive.disk(2);
    let same = other.open(data(), OpenMode::Existing).unwrap().file;
    assert_eq!(disk.lock(file), Ok(Lock::Taken));
    disk.submit(vec![write(0, file, 0, 1, 1)]);
    disk.close(file);
    assert_eq!(other.lock(same), Ok(Lock::Held { process: Some(1) }));
    disk.wait(Duration::from_secs(1));
    assert_eq!(poll(&mut disk)[0].outcome, Ok(()));
    assert_eq!(other.lock(same), Ok(Lock::Taken));
}

#[test]
fn blocks_are_what_is_reserved_and_what_is_written_behind_it() {
    let total = ByteCount::new(10 * PAGE);
    let drive = SimDrive::with_options(1, SimOptions { total, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    let pages = |disk: &mut SimDisk| {
        let allocated = disk.allocated(data()).unwrap().get() / PAGE;
        let Space { total, available } = disk.space(data()).unwrap();
        assert_eq!(total.get() / PAGE - available.get() / PAGE, allocated);
        allocated
    };
    assert_eq!(pages(&mut disk), 0);
    disk.allocate(file, ByteCount::new(3 * PAGE - 1)).unwrap();
    assert_eq!((pages(&mut disk), disk.length(file).unwrap().get()), (3, 3 * PAGE - 1));
    succeed(&mut disk, write(0, file, 1, 2, 1));
    assert_eq!(pages(&mut disk), 3, "reserved before");
    succeed(&mut disk, write(0, file, 20, 1, 1));
    assert_eq!((pages(&mut disk), disk.length(file).unwrap().get()), (4, 21 * PAGE));
    disk.truncate(file, ByteCount::new(PAGE)).unwrap();
    assert_eq!((pages(&mut disk), disk.length(file).unwrap().get()), (1, PAGE));
    disk.truncate(file, ByteCount::new(2 * PAGE)).unwrap();
    assert_eq!(read_back(&mut disk, file, 1, 1), (Ok(()), vec![0; 4096]), "cut is cut");
    assert_eq!(disk.allocated(Path::new("/none")), Ok(ByteCount::new(0)));
    assert!(disk.space(Path::new("/none")).is_err());
}

#[test]
fn a_full_file_system_refuses_new_blocks_and_takes_old_ones() {
    let total = ByteCount::new(4 * PAGE);
    let drive = SimDrive::with_options(1, SimOptions { total, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    let refused = disk.allocate(file, ByteCount::new(5 * PAGE)).unwrap_err();
    assert_eq!((refused.call, refused.kind), (FileCall::Allocate, ErrorKind::StorageFull));
    assert_eq!(refused.path, data());
    disk.allocate(file, ByteCount::new(3 * PAGE)).unwrap();
    let full = outcome(&mut disk, write(0, file, 3, 2, 1));
    assert!(matches!(full, Err(IoFault::NoSpace { .. })));
    succeed(&mut disk, write(0, file, 0, 4, 1));
    succeed(&mut disk, write(0, file, 1, 2, 2));
    let other = disk.open(Path::new("/other"), OpenMode::Create).unwrap().file;
    assert!(disk.allocate(other, ByteCount::new(1)).is_err());
    disk.remove_file(data()).unwrap();
    assert!(disk.allocate(other, ByteCount::new(1)).is_err(), "open files keep their blocks");
    disk.close(file);
    disk.allocate(other, ByteCount::new(4 * PAGE)).unwrap();
}

#[test]
fn files_are_stamped_with_virtual_time() {
    let clock = SimClock::default();
    let options = SimOptions { clock: clock.clone(), ..SimOptions::default() };
    let drive = SimDrive::with_options(1, options);
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    let made = clock.unix_s();
    assert_eq!(disk.modified_s(data()), Ok(made));
    clock.advance(Duration::from_secs(100));
    assert_eq!(disk.modified_s(data()), Ok(made));
    succeed(&mut disk, write(0, file, 0, 1, 1));
    assert_eq!(disk.modified_s(data()), Ok(made + 100));
    assert_eq!(disk.modified_s(Path::new("/none")), Ok(0));
}

#[test]
fn files_that_are_not_open_are_named_in_the_error() {
    let (_drive, mut disk, file) = drive_and_file(1);
    disk.close(file);
    assert!(disk.length(file).is_err() && disk.lock(file).is_err());
    let refused = disk.truncate(FileId::new(9), ByteCount::new(0)).unwrap_err();
    assert_eq!(refused.path, Path::new("file 9"));
    let reading = disk.open(data(), OpenMode::ReadOnly).unwrap().file;
    assert!(disk.allocate(reading, ByteCount::new(PAGE)).is_err());
    assert!(disk.truncate(reading, ByteCount::new(0)).is_err());
}
