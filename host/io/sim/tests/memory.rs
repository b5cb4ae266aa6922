//! Memory under an operation: filled at the end, never changed by anyone else meanwhile.

use super::*;
use crate::io::SlotPages;
use crate::mem::{Slab, SlotMemory};
use crate::units::{ByteCount, SlotIndex};

fn slot() -> SlotMemory {
    let slab = Slab::allocate(1, ByteCount::new(3 * PAGE)).unwrap();
    slab.slot(SlotIndex::new(0), slab.slot_bytes())
}

#[test]
fn slots_travel_to_the_file_and_back() {
    let (drive, mut disk, file) = drive_and_file(1);
    let source = slot();
    source.write_header(0, &[1; 4096]);
    source.write().unwrap().payload().fill(2);
    let pages = SlotPages::to_write_out(source).unwrap();
    let work = IoWork::Write { offset: PAGE, memory: IoMemory::Slot(pages) };
    succeed(&mut disk, IoOperation { tag: 0, file, work });
    let mut expected = vec![0; 4096];
    expected.extend([1; 4096]);
    expected.extend([2; 8192]);
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(expected));

    let pages = SlotPages::to_fill(slot()).unwrap();
    let parts = [pages.part(0..4096), pages.part(4096..12288)];
    let reads = parts.into_iter().zip([1, 2]).map(|(part, page)| {
        let work = IoWork::Read { offset: page * PAGE, memory: IoMemory::Slot(part) };
        IoOperation { tag: page, file, work }
    });
    let finished = run(&mut disk, reads.collect());
    assert!(finished.iter().all(|report| report.outcome == Ok(())));
    let mut header = [0; 4096];
    pages.slot().read_header(0, &mut header);
    assert_eq!(header, [1; 4096]);
    assert!(pages.slot().read().is_none(), "the hold lasts");
    let mut whole = vec![0; 12288];
    drop(finished);
    IoMemory::Slot(pages).copy_to(&mut whole);
    assert_eq!(whole[4096..], [2; 8192]);
}

#[test]
fn a_read_fills_its_memory_only_when_it_ends() {
    let (drive, mut disk, file) = drive_and_file(1);
    succeed(&mut disk, write(0, file, 0, 1, 5));
    let pages = SlotPages::to_fill(slot()).unwrap();
    let memory = IoMemory::Slot(pages.part(0..4096));
    disk.submit(vec![IoOperation { tag: 0, file, work: IoWork::Read { offset: 0, memory } }]);
    let mut header = [9; 4096];
    loop {
        pages.slot().read_header(0, &mut header);
        if !poll(&mut disk).is_empty() {
            break;
        }
        assert_eq!(header, [0; 4096], "not before it is reported");
        drive.clock().advance(Duration::from_nanos(700));
    }
    pages.slot().read_header(0, &mut header);
    assert_eq!(header, [5; 4096]);
}

/// Submits an operation on a slot's header page, lets some time pass, changes the page, and lets
/// the operation end. Returns whether it had ended before.
fn change_meanwhile(
    pages: &SlotPages,
    passed: Duration,
    work: impl FnOnce(IoMemory) -> IoWork,
) -> bool {
    let (drive, mut disk, file) = drive_and_file(1);
    let work = work(IoMemory::Slot(pages.part(0..4096)));
    disk.submit(vec![IoOperation { tag: 0, file, work }]);
    drive.clock().advance(passed);
    let has_ended = !poll(&mut disk).is_empty();
    pages.slot().write_header(8, &[1; 8]);
    disk.wait(Duration::from_secs(1));
    has_ended
}

#[test]
#[should_panic(expected = "memory changed under a Write of 4096 bytes at 0 of /store/data")]
fn whoever_changes_a_writes_memory_is_caught() {
    let pages = SlotPages::to_write_out(slot()).unwrap();
    change_meanwhile(&pages, Duration::ZERO, |memory| IoWork::Write { offset: 0, memory });
}

#[test]
#[should_panic(expected = "memory changed under a Read of 4096 bytes at 0 of /store/data")]
fn whoever_changes_a_reads_memory_is_caught() {
    let pages = SlotPages::to_fill(slot()).unwrap();
    change_meanwhile(&pages, Duration::ZERO, |memory| IoWork::Read { offset: 0, memory });
}

#[test]
fn whoever_changes_a_writes_memory_at_any_time_before_its_end_is_caught() {
    let outcomes = (0..1000).step_by(50).map(|passed_us| {
        std::panic::catch_unwind(|| {
            let pages = SlotPages::to_write_out(slot()).unwrap();
            let work = |memory| IoWork::Write { offset: 0, memory };
            change_meanwhile(&pages, Duration::from_micros(passed_us), work)
        })
    });
    let outcomes: Vec<Option<bool>> = outcomes.map(Result::ok).collect();
    let first_ended = outcomes.iter().position(Option::is_some).unwrap();
    assert!(first_ended > 3, "caught at first");
    assert!(outcomes[first_ended..].iter().all(|outcome| *outcome == Some(true)));
}

#[test]
fn memory_comes_back_from_a_drive_that_lost_power() {
    let (drive, mut disk, file) = drive_and_file(1);
    let pages = SlotPages::to_fill(slot()).unwrap();
    let memory = IoMemory::Slot(pages);
    disk.submit(vec![IoOperation { tag: 0, file, work: IoWork::Read { offset: 0, memory } }]);
    drive.cut_power();
    let report = poll(&mut disk).remove(0);
    let Some(IoMemory::Slot(pages)) = report.memory else { panic!("the memory was a slot") };
    assert!(pages.slot().read().is_none());
}

#[test]
#[should_panic(expected = "held to be written out is not filled")]
fn a_slot_that_is_held_to_be_written_out_is_not_filled() {
    let pages = SlotPages::to_write_out(slot()).unwrap();
    IoMemory::Slot(pages).copy_from(&[0; 8]);
}

#[test]
#[should_panic(expected = "8200 bytes of 8192")]
fn more_bytes_than_the_pages_have_are_not_copied() {
    let pages = SlotPages::to_write_out(slot()).unwrap().part(4096..12288);
    IoMemory::Slot(pages).copy_to(&mut [0; 8200]);
}
