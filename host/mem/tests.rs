//! Slabs: what is promised about their memory, and what is refused.

use super::available::{available_below, group_path, mem_available};
use super::region::{HUGE_PAGE_BYTES, huge_bytes};
use super::{MemoryLimit, PageKind, Slab, SlabError};
use crate::units::{ByteCount, SlotIndex};
use std::fs;

fn slab(slot_count: u32, slot_bytes: u64) -> std::sync::Arc<Slab> {
    Slab::allocate(slot_count, ByteCount::new(slot_bytes)).expect("a small slab")
}

#[test]
fn slots_are_zeroed_apart_and_as_long_as_asked() {
    let slab = slab(3, 12288);
    let whole = |slot: u8| slab.slot(SlotIndex::new(slot.into()), slab.slot_bytes());
    for slot in 0..3 {
        let memory = whole(slot);
        assert_eq!(memory.length(), slab.slot_bytes());
        assert!(memory.address().addr().is_multiple_of(4096));
        let mut access = memory.write().expect("unused");
        assert_eq!(access.payload(), [0; 8192]);
        access.payload().fill(slot + 1);
        memory.write_header(0, &[slot + 11; 4096]);
    }
    for slot in 0..3 {
        let mut header = [0; 4096];
        whole(slot).read_header(0, &mut header);
        assert_eq!(header, [slot + 11; 4096]);
        assert_eq!(whole(slot).read().expect("unused").payload(), [slot + 1; 8192]);
    }
    let (address, bytes) = slab.memory();
    assert_eq!(address, whole(0).address());
    assert!(bytes.get() >= 3 * 12288);
}

#[test]
fn a_slot_outlives_the_callers_slab() {
    let slab = slab(1, 8192);
    let slot = slab.slot(SlotIndex::new(0), ByteCount::new(8192));
    drop(slab);
    slot.write().expect("unused").payload().fill(3);
    assert_eq!(slot.read().expect("unused").payload(), [3; 4096]);
}

#[test]
fn a_slot_has_one_writer_or_many_readers() {
    let slab = slab(2, 8192);
    let slot = || slab.slot(SlotIndex::new(0), ByteCount::new(8192));
    let (one, other) = (slot(), slot());
    let write = one.write().expect("unused");
    assert!(other.read().is_none());
    assert!(other.write().is_none());
    let neighbour = slab.slot(SlotIndex::new(1), ByteCount::new(4096));
    assert!(neighbour.write().is_some(), "the account is by slot");
    drop(write);
    let first = one.read().expect("the writer left");
    let second = other.read().expect("readers share");
    drop(first);
    assert!(one.write().is_none(), "one reader is left");
    drop(second);
    assert!(one.write().is_some());
}

#[test]
fn header_words_are_written_one_by_one() {
    let slab = slab(1, 4096);
    let slot = slab.slot(SlotIndex::new(0), ByteCount::new(4096));
    slot.write_header(4032, &[9; 64]);
    let mut header = [0; 4096];
    slot.read_header(0, &mut header);
    assert_eq!(header[..4032], [0; 4032]);
    assert_eq!(header[4032..], [9; 64]);
}

#[test]
#[should_panic(expected = "16 bytes at byte 4088 of a header page")]
fn a_header_write_past_the_page_panics() {
    let slab = slab(1, 8192);
    slab.slot(SlotIndex::new(0), ByteCount::new(8192)).write_header(4088, &[1; 16]);
}

#[test]
#[should_panic(expected = "slot 2 of 2")]
fn a_slot_beyond_the_last_panics() {
    drop(slab(2, 4096).slot(SlotIndex::new(2), ByteCount::new(4096)));
}

#[test]
#[should_panic(expected = "8192 bytes of a slot of 4096")]
fn more_bytes_than_the_slot_has_panic() {
    drop(slab(2, 4096).slot(SlotIndex::new(0), ByteCount::new(8192)));
}

#[test]
fn sizes_without_sense_are_refused_by_name() {
    for (slot_count, slot_bytes) in [(0, 4096), (1, 0), (1, 4095), (u32::MAX, 1 << 40)] {
        let refused = Slab::allocate(slot_count, ByteCount::new(slot_bytes));
        let slot = ByteCount::new(slot_bytes);
        let expected = SlabError::Size { purpose: "host slab", slot_count, slot };
        assert_eq!(refused.err(), Some(expected));
    }
}

#[test]
fn more_memory_than_there_is_is_refused_and_not_tried() {
    let refused = Slab::allocate(1 << 20, ByteCount::new(1 << 30)).expect_err("a pebibyte");
    let text = refused.to_string();
    match refused {
        SlabError::Unavailable { bytes, .. } | SlabError::Refused { bytes, .. } => {
            assert_eq!(bytes.get(), 1 << 50);
        }
        other => panic!("{other}"),
    }
    assert!(text.contains("host slab") && text.contains("1024.0 TiB"), "{text}");
    assert!(text.contains("lower the capacity"), "{text}");
}

#[test]
fn a_slab_says_which_pages_it_got_or_why_not_better() {
    let slab = slab(5, HUGE_PAGE_BYTES as u64);
    let (address, _) = slab.memory();
    assert!(address.addr().is_multiple_of(HUGE_PAGE_BYTES));
    match (slab.page_kind(), slab.downgrade()) {
        (PageKind::HugeTlb | PageKind::TransparentHuge, None) => {}
        (PageKind::Small, Some(downgrade)) => {
            assert_eq!(downgrade.what, "2 MiB pages");
            assert!(downgrade.why.contains("no hugetlb pages"), "{}", downgrade.why);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kernel_is_read_for_the_right_mapping_only() {
    let smaps = "\
        7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize: 2048 kB\nAnonHugePages: 0 kB\n\
        7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \nSize: 4096 kB\n\
        AnonHugePages:      4096 kB\nVmFlags: rd wr\n\
        7f0000a00000-7f0000c00000 rw-p 00000000 00:00 0 \nSize: 2048 kB\n";
    assert_eq!(huge_bytes(smaps, 0x7f00_0000_0000), Some(0));
    assert_eq!(huge_bytes(smaps, 0x7f00_0040_0000), Some(4 << 20));
    assert_eq!(huge_bytes(smaps, 0x7f00_00a0_0000), None, "the kernel does not say");
    assert_eq!(huge_bytes(smaps, 0x7f00_0020_0000), None, "no such mapping");
}

#[test]
fn the_machines_estimate_is_read_in_bytes() {
    let meminfo = "MemTotal:       24683520 kB\nMemAvailable:   24000000 kB\n";
    assert_eq!(mem_available(meminfo), Some(24_000_000 * 1024));
    assert_eq!(mem_available("MemTotal: 1 kB\n"), None);
}

#[test]
fn the_control_group_is_found_in_both_versions() {
    let groups = "9:name=systemd:/\n4:memory,cpu:/a/b\n0::/c:d\n";
    assert_eq!(group_path(groups, "memory"), Some("/a/b"));
    assert_eq!(group_path(groups, ""), Some("/c:d"));
    assert_eq!(group_path("9:name=systemd:/\n", "memory"), None);
}

#[test]
fn the_tightest_control_group_above_us_bounds_memory() {
    let mount = std::env::temp_dir().join(format!("kvtide-cgroup-{}", std::process::id()));
    let write = |folder: &str, name: &str, text: &str| {
        let folder = mount.join(folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        fs::write(folder.join(name), text).expect("a temporary file");
    };
    write("pod", "memory.max", "1000000\n");
    write("pod", "memory.current", "600000\n");
    write("pod", "memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\n");
    write("pod/engine", "memory.max", "max\n");
    write("pod/engine", "memory.current", "5\n");
    write("other", "memory.max", "700\n");
    write("other", "memory.current", "900\n");

    assert_eq!(available_below(&mount, "/pod/engine"), Some(550_000), "page cache gives way");
    assert_eq!(available_below(&mount, "/pod/engine/not/seen"), Some(550_000));
    assert_eq!(available_below(&mount, "/other"), Some(0), "usage may pass a lowered limit");
    assert_eq!(available_below(&mount, "/"), None, "no limit is stated");
    fs::remove_dir_all(&mount).expect("the folder is ours");
}

#[test]
fn limits_print_what_bounds_the_memory() {
    let error = SlabError::Unavailable {
        purpose: "staging ring",
        bytes: ByteCount::new(5 << 30),
        available: ByteCount::new(3 << 30),
        limit: MemoryLimit::ControlGroup,
    };
    assert_eq!(
        error.to_string(),
        "staging ring: 5.0 GiB are needed, but the control group's memory limit leaves 3.0 GiB; \
         lower the capacity, or raise the limit"
    );
}
