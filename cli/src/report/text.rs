//! Numbers, units and tables for people.

use std::fmt::Write;
use std::time::Duration;

/// Returns rows as lines, each column as wide as its widest cell and aligned to the right.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..column_count).map(width_of).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Returns headings as a row.
pub(super) fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Rounds a rate for people.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and `as` saturates"
)]
pub(super) fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// Writes a number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a time in the unit that gives it one to three digits before the point.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if time < Duration::from_micros(1) => format!("{} ns", time.as_nanos()),
        _ if time < Duration::from_millis(1) => short(seconds * 1e6, "us"),
        _ if time < Duration::from_secs(1) => short(seconds * 1e3, "ms"),
        _ => short(seconds, "s"),
    }
}

/// Writes how long ago something was, in the largest unit that fits.
pub(super) fn age(seconds: u64) -> String {
    let units = [("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)];
    let fits = units.into_iter().find(|(_, unit_seconds)| seconds >= *unit_seconds);
    let (unit, unit_seconds) = fits.unwrap_or(("second", 1));
    let count = seconds / unit_seconds;
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {unit}{plural}", grouped(count))
}

/// Writes three digits or more.
fn short(value: f64, unit: &str) -> String {
    let decimals = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::{age, columns, duration, grouped, headings};
    use std::time::Duration;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let printed = [0, 7, 999, 1_000, 12_345, 123_456, 94_310_647].map(grouped);
        let expected = ["0", "7", "999", "1,000", "12,345", "123,456", "94,310,647"];
        assert_eq!(printed, expected);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn times_have_three_digits_in_a_unit_of_their_size() {
        let printed = [0, 999, 1_000, 99_960, 1_234_567, 45_600_000, 3_600_000_000_000]
            .map(|nanoseconds| duration(Duration::from_nanos(nanoseconds)));
        let expected = ["0 ns", "999 ns", "1.00 us", "100 us", "1.23 ms", "45.6 ms", "3600 s"];
        assert_eq!(printed, expected);
    }

    #[test]
    fn ages_are_in_the_largest_unit_that_fits() {
        let printed = [0, 1, 59, 60, 7_199, 86_399, 86_400, 172_800_000].map(age);
        let expected = [
            "0 seconds",
            "1 second",
            "59 seconds",
            "1 minute",
            "1 hour",
            "23 hours",
            "1 day",
            "2,000 days",
        ];
        assert_eq!(printed, expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [headings(&["a", "long"]), headings(&["wide", "b"])];
        assert_eq!(columns(&rows), "     a  long\n  wide     b\n");
    }
}
