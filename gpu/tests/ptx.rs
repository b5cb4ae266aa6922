//! The PTX that the crate embeds, as text: what it exports and what it must not contain.

use kvtide_kernels::{abi, ptx};

#[test]
fn exports_exactly_the_kernels_with_their_arguments() {
    let exported: Vec<&str> = ptx::TEXT
        .split(".visible .entry ")
        .skip(1)
        .map(|entry| entry.split("\n)").next().expect("split yields one piece at least"))
        .collect();
    let expected = abi::KERNELS.map(|kernel| {
        let (name, bytes, align) = (kernel.name, kernel.arguments_bytes, kernel.arguments_align);
        format!("{name}(\n\t.param .align {align} .b8 {name}_param_0[{bytes}]")
    });
    assert_eq!(exported, expected);
}

#[test]
fn asks_for_the_oldest_gpu_and_driver_that_are_promised() {
    let lines: Vec<&str> = ptx::TEXT.lines().collect();
    assert!(lines.contains(&".target sm_75"));
    assert!(lines.contains(&".version 7.4"));
    assert!(lines.contains(&".address_size 64"));
}

#[test]
fn needs_nothing_but_registers_and_global_memory() {
    // `.extern` and `call` would be a panic's, `trap` an unreachable's; other kinds of memory and
    // barriers cost occupancy; read-only loads move behind stores; `.file` names a machine's paths.
    for banned in [".extern", ".func", ".local", ".shared", "call", "trap", "bar.", ".nc.", ".file"]
    {
        let found = ptx::TEXT
            .lines()
            .map(|line| line.split("//").next().expect("split yields one piece at least"))
            .find(|line| line.contains(banned));
        assert_eq!(found, None, "{banned}");
    }
}

#[test]
fn states_the_launch_bounds_of_every_launch() {
    let bound = format!(".maxntid {}", abi::THREADS_PER_BLOCK);
    let stated: Vec<&str> = ptx::TEXT.lines().filter(|line| line.starts_with(".maxntid")).collect();
    assert!(!stated.is_empty());
    assert!(stated.iter().all(|line| *line == bound), "{stated:?}");
}

#[test]
fn has_no_zero_byte_that_would_end_it_for_the_driver() {
    assert!(!ptx::TEXT.contains('\0'));
}
