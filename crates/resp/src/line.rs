//! Lines of the protocol: a type byte, a short text, `\r\n`.

use crate::ProtocolError;

/// No line that holds a number is longer: 20 characters hold every `i64`.
pub(crate) const MAX_NUMBER_LINE: usize = 32;

/// Finds the end of the line that begins `input`, looking from `from` on.
///
/// Gives the length without the line end, or `None` when it has not arrived.
pub(crate) fn line_end(input: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        // Byte by byte: comparing slices calls a function for each place.
        at += input.get(at..)?.iter().position(|byte| *byte == b'\r')?;
        if *input.get(at + 1)? == b'\n' {
            return Some(at);
        }
        at += 1;
    }
}

/// The end of a short line, or an error when there can be none.
pub(crate) fn number_line_end(input: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let head = input.get(..MAX_NUMBER_LINE + 2).unwrap_or(input);
    match line_end(head, 0) {
        Some(end) => Ok(Some(end)),
        None if head.len() == MAX_NUMBER_LINE + 2 => Err(ProtocolError::LongLine),
        None => Ok(None),
    }
}

/// Reads an integer the way Redis does: no `+`, no spaces, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|d| *d <= 9)?);
        value = value.checked_mul(10)?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for value in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
        for bad in
            ["", "-", "-0", "01", "+1", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "1a"]
        {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_number_line_has_an_end_soon() {
        assert_eq!(number_line_end(b"*12\r\nrest"), Ok(Some(3)));
        assert_eq!(number_line_end(b"*12\r"), Ok(None));
        assert_eq!(number_line_end(&[b'1'; 40]), Err(ProtocolError::LongLine));
    }
}
