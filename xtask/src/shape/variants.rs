//! Worse kernels than ours, which the rules must refuse: a check that passes everything is none.

/// The load that the kernels are written with.
const LOAD: &str = "ld.global.L1::no_allocate.v2.u64";

/// Returns the PTX with its 128-bit loads through the read-only path, which the assembler may move
/// behind stores.
///
/// # Errors
///
/// When there is no such load.
pub(super) fn with_read_only_loads(ptx: &str) -> Result<String, String> {
    if !ptx.contains(LOAD) {
        return Err(format!("the PTX has no {LOAD}"));
    }
    Ok(ptx.replace(LOAD, "ld.global.nc.L1::no_allocate.v2.u64"))
}

/// Returns the PTX with no say in how many thread blocks a multiprocessor holds.
///
/// # Errors
///
/// When it has none.
pub(super) fn without_launch_bounds(ptx: &str) -> Result<String, String> {
    let is_bound = |line: &str| line.starts_with(".maxntid") || line.starts_with(".minnctapersm");
    if !ptx.lines().any(is_bound) {
        return Err("the PTX has no launch bounds".to_owned());
    }
    let kept: Vec<&str> = ptx.lines().filter(|line| !is_bound(line)).collect();
    Ok(kept.join("\n") + "\n")
}

/// Returns the PTX with each 128-bit load moved down to the store of what it loads, so that one is
/// in flight; loads whose words no 128-bit store takes stay.
///
/// # Errors
///
/// When no load moves.
pub(super) fn with_stores_after_each_load(ptx: &str) -> Result<String, String> {
    let lines: Vec<&str> = ptx.lines().collect();
    let mut moved: Vec<(usize, usize)> = Vec::new();
    for (from, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(LOAD)) {
        let Some(words) = line.split(['{', '}']).nth(1).map(|words| format!("{{{words}}};")) else {
            continue;
        };
        let is_its_store = |line: &&str| line.contains("st.global.v2.u64") && line.contains(&words);
        let rest = lines[from..].iter().take_while(|line| !line.starts_with('}'));
        if let Some(distance) = rest.clone().position(is_its_store) {
            moved.push((from, from + distance));
        }
    }
    if moved.is_empty() {
        return Err("no load of the PTX has a store".to_owned());
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        for (from, _) in moved.iter().filter(|(_, to)| *to == at) {
            text.push_str(lines[*from]);
            text.push('\n');
        }
        if !moved.iter().any(|(from, _)| *from == at) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{LOAD, with_read_only_loads, with_stores_after_each_load, without_launch_bounds};
    use kvtide_kernels::ptx::TEXT;

    #[test]
    fn the_variants_differ_from_our_kernels_in_what_they_say() {
        let read_only = with_read_only_loads(TEXT).expect("our kernels have loads");
        assert!(!read_only.contains(LOAD));
        let unbounded = without_launch_bounds(TEXT).expect("our kernels have bounds");
        assert!(!unbounded.contains(".minnctapersm"));
        let one_by_one = with_stores_after_each_load(TEXT).expect("our kernels have stores");
        assert_eq!(one_by_one.lines().count(), TEXT.lines().count());
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&one_by_one), sorted(TEXT));
        assert_ne!(one_by_one, TEXT);
    }

    #[test]
    fn a_load_moves_to_the_store_of_its_words() {
        let load = |words: &str| format!("{LOAD} {{{words}}}, [%rd9+0];\n");
        let store = |words: &str| format!("st.global.v2.u64 [%rd8+0], {{{words}}};\n");
        let (first, second, summed) = ("%rd1, %rd2", "%rd3, %rd4", "%rd5, %rd6");
        let ours = [load(first), load(second), load(summed), store(first), store(second)].concat();
        let moved = [load(summed), load(first), store(first), load(second), store(second)].concat();
        assert_eq!(with_stores_after_each_load(&ours), Ok(moved));
        assert!(with_stores_after_each_load(&load(summed)).is_err());
    }
}
