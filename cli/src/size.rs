//! Sizes on the command line: a whole number of bytes, or of binary units.

use kvtide::units::ByteCount;

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Reads `4096`, `512MiB` or `2 GiB`; at least one byte.
pub(crate) fn parse(text: &str) -> Result<ByteCount, String> {
    let unit = UNITS.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number = number.trim_end_matches(' ');
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = is_plain
        .then(|| number.parse::<u64>().ok()?.checked_mul(1 << shift))
        .flatten()
        .filter(|&bytes| bytes > 0);
    bytes
        .map(ByteCount::new)
        .ok_or_else(|| "give a whole number of B, KiB, MiB, GiB or TiB, such as 512MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_bytes_or_binary_units() {
        let bytes = |text: &str| parse(text).unwrap().get();
        assert_eq!(bytes("1"), 1);
        assert_eq!(bytes("4096B"), 4096);
        assert_eq!(bytes("3KiB"), 3 << 10);
        assert_eq!(bytes("512 MiB"), 512 << 20);
        assert_eq!(bytes("2GiB"), 2 << 30);
        assert_eq!(bytes("16777215TiB"), 16_777_215 << 40);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "0", "0KiB", "-1", "+1", "1.5GiB", "1GB", "1gib", "KiB", "16777216TiB", "1 2KiB"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
