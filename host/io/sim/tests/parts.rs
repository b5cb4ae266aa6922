//! Parts of a drive fail by themselves, and have places of their own.

use super::*;
use crate::io::sim::{SimFault, SimKind, SimRule};
use nix::errno::Errno;

/// A drive with two parts and a file on each.
fn parts() -> (SimDrive, SimDisk, [FileId; 2]) {
    let options = SimOptions { depth: 2, ..SimOptions::default() };
    let drive = SimDrive::with_options(1, options);
    let mut disk = drive.disk(1);
    let files = ["/one", "/two"].map(|root| {
        drive.mount(Path::new(root));
        disk.create_directory(Path::new(root)).unwrap();
        disk.open(&Path::new(root).join("data"), OpenMode::Create).unwrap().file
    });
    (drive, disk, files)
}

#[test]
fn a_part_that_hangs_takes_no_place_from_another() {
    let (drive, mut disk, [one, two]) = parts();
    drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named("one"));
    disk.submit((0..10).map(|tag| write(tag, one, tag, 1, 1)).collect());
    for tag in 100..110 {
        disk.submit(vec![write(tag, two, 0, 1, 2)]);
        let mut finished = Vec::new();
        while finished.is_empty() {
            disk.wait(Duration::from_secs(1));
            disk.poll(&mut finished);
        }
        assert_eq!((finished[0].tag, &finished[0].outcome), (tag, &Ok(())));
    }
    assert!(drive.clock().now().get() < 1_000_000_000, "nobody waited for the other part");
}

#[test]
fn what_waits_for_a_part_that_hangs_is_given_up_in_time() {
    let (drive, mut disk, [one, _]) = parts();
    drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named("one").at(0));
    drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named("one").at(1));
    let finished = run(&mut disk, (0..10).map(|tag| write(tag, one, tag, 1, 1)).collect());
    assert_eq!(finished.len(), 10, "none waits for ever");
}

#[test]
fn a_part_that_vanishes_leaves_the_others() {
    let (drive, mut disk, [one, two]) = parts();
    drive.inject(SimRule::new(SimFault::Vanish).named("one").at(0));
    let gone =
        IoFault::Drive { errno: Errno::ENODEV as i32, reason: Errno::ENODEV.desc().to_owned() };
    assert_eq!(outcome(&mut disk, write(1, one, 0, 1, 1)), Err(gone));
    assert!(disk.list(Path::new("/one")).is_err());
    assert!(disk.length(one).is_err());
    succeed(&mut disk, write(2, two, 0, 1, 1));
    assert_eq!(disk.list(Path::new("/two")).unwrap().len(), 1);
}

#[test]
fn a_part_that_becomes_read_only_leaves_the_others() {
    let (drive, mut disk, [one, two]) = parts();
    succeed(&mut disk, write(0, one, 0, 1, 7));
    drive.inject(SimRule::new(SimFault::ReadOnly).named("one").at(0));
    assert_eq!(outcome(&mut disk, write(1, one, 0, 1, 1)), Err(IoFault::ReadOnly));
    succeed(&mut disk, read(2, one, 0, 1));
    succeed(&mut disk, write(3, two, 0, 1, 1));
    assert!(disk.open(Path::new("/one/other"), OpenMode::Create).is_err());
    assert!(disk.open(Path::new("/two/other"), OpenMode::Create).is_ok());
}
