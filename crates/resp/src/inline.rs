//! Inline requests: a line of words, as a person types it.

use crate::ProtocolError;
use bytes::Bytes;

/// Cuts a line into words. Quotes and escapes work as in Redis.
pub(crate) fn words(line: &[u8], out: &mut Vec<Bytes>) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        let mut word = Vec::new();
        rest = one_word(rest, &mut word)?;
        out.push(word.into());
    }
}

fn one_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'"' => return closed(double_quoted(after, word)?),
            b'\'' => return closed(single_quoted(after, word)?),
            byte if byte.is_ascii_whitespace() || *byte == 0 => return Ok(after),
            byte => word.push(*byte),
        }
        rest = after;
    }
    Ok(rest)
}

/// A closing quote ends the word: only a space may follow it.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::Quotes),
        _ => Ok(rest),
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Ok(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(ProtocolError::Quotes),
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', byte, after @ ..] => {
                word.push(escaped(*byte));
                rest = after;
            }
            [b'"', after @ ..] => return Ok(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(ProtocolError::Quotes),
        }
    }
}

fn escaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(line: &str) -> Result<Vec<Bytes>, ProtocolError> {
        let mut out = Vec::new();
        words(line.as_bytes(), &mut out).map(|()| out)
    }

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(cut("  set a\tb ").unwrap(), ["set", "a", "b"]);
        assert_eq!(cut(r#"set "a b" 'it\'s' "\x41\n\"""#).unwrap(), ["set", "a b", "it's", "A\n\""]);
        assert_eq!(cut(r#""" x"#).unwrap(), ["", "x"]);
        assert_eq!(cut("").unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn quotes_must_close() {
        for bad in [r#"set "a"#, "'", r#""a"b"#, r#"set "a\"#] {
            assert_eq!(cut(bad), Err(ProtocolError::Quotes), "{bad}");
        }
    }
}
