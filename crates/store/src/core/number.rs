//! Numbers in arguments, read as strictly as Redis does.

use super::error::CommandError;
use bytes::Bytes;

pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: i64 = text.parse().ok()?;
    // `parse` also takes `+1`, `01` and `-0`.
    let plain = !text.starts_with('+') && (value == 0 || !text.trim_start_matches('-').starts_with('0'));
    (plain && (value != 0 || text == "0")).then_some(value)
}

pub(crate) fn integer_argument(text: &[u8]) -> Result<i64, CommandError> {
    integer(text).ok_or(CommandError::NotInteger)
}

pub(crate) fn count_argument(text: &[u8]) -> Result<usize, CommandError> {
    usize::try_from(integer_argument(text)?).ok().ok_or(CommandError::NotPositive)
}

pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

pub(crate) fn is(argument: &Bytes, word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Turns a range of Redis, in which -1 is the last element, into one of Rust.
pub(crate) fn range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let absolute = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let start = absolute(start).max(0);
    let stop = absolute(stop).min(len - 1);
    if start > stop {
        return 0..0;
    }
    usize::try_from(start).unwrap_or(0)..usize::try_from(stop).unwrap_or(0) + 1
}

/// The element that an index of Redis means.
pub(crate) fn index(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let absolute = if index < 0 { index.saturating_add(len) } else { index };
    usize::try_from(absolute).ok().filter(|_| absolute < len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (text, value) in
            [("0", Some(0)), ("-1", Some(-1)), ("01", None), ("+1", None), ("-0", None), ("", None)]
        {
            assert_eq!(integer(text.as_bytes()), value, "{text}");
        }
        assert_eq!(integer(i64::MIN.to_string().as_bytes()), Some(i64::MIN));
        assert_eq!(integer(b"9223372036854775808"), None);
    }

    #[test]
    fn ranges_count_from_both_ends() {
        assert_eq!(range(0, -1, 3), 0..3);
        assert_eq!(range(-2, -1, 3), 1..3);
        assert_eq!(range(-100, 100, 3), 0..3);
        assert_eq!(range(2, 1, 3), 0..0);
        assert_eq!(range(0, -1, 0), 0..0);
        assert_eq!(range(i64::MIN, i64::MAX, 2), 0..2);
        assert_eq!((index(-1, 3), index(3, 3), index(-4, 3)), (Some(2), None, None));
    }
}
