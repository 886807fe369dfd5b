//! The npy format: one numpy array.

use super::Elements;
use super::literal::{self, HeaderError};
use crate::array::{Array, Layout};
use crate::error::{DataError, Fault, Origin};
use crate::map::map;
use crate::spec::Format;
use bytes::Bytes;
use std::path::Path;

/// The longest header that is read: numpy itself refuses 10,000 bytes unless told otherwise.
const LONGEST_HEADER: usize = 64 << 10;
/// The longest start of a file that has its whole header.
pub(super) const LONGEST_START: usize = LONGEST_HEADER + 12;

pub(super) fn open(file: &Path) -> Result<Array, DataError> {
    from_bytes(Origin::file(file), Format::Npy, &map(file)?)
}

/// The array of a file, as it lies there.
pub(super) fn open_elements(file: &Path) -> Result<Elements, DataError> {
    elements(&Origin::file(file), Format::Npy, &map(file)?)
}

/// Reads an npy file in memory.
fn from_bytes(origin: Origin, format: Format, bytes: &Bytes) -> Result<Array, DataError> {
    let (layout, data) = elements(&origin, format, bytes)?;
    Array::new(origin, format, layout, data)
}

/// The array of an npy file in memory, as it lies there.
pub(super) fn elements(origin: &Origin, format: Format, bytes: &Bytes) -> Result<Elements, DataError> {
    let (layout, start) = header(origin, format, bytes)?;
    Ok((layout, bytes.slice(start..)))
}

/// The layout, and the offset of the elements; `bytes` need only have the start of the file.
pub(super) fn header(origin: &Origin, format: Format, bytes: &[u8]) -> Result<(Layout, usize), DataError> {
    let parsed = text(bytes).and_then(|(text, start)| match literal::parse(text) {
        Ok(layout) => Ok((Ok(layout), start)),
        Err(HeaderError::Type(dtype)) => Ok((Err(dtype), start)),
        Err(HeaderError::Syntax(what)) => Err(Fault::Header { what }),
    });
    match parsed {
        Ok((Ok(layout), start)) => Ok((layout, start)),
        Ok((Err(dtype), _)) => Err(DataError::UnsupportedType { dtype, origin: origin.clone() }),
        Err(fault) => Err(DataError::Malformed { format, fault, origin: origin.clone() }),
    }
}

/// The text of the header, and where it ends.
fn text(bytes: &[u8]) -> Result<(&[u8], usize), Fault> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or(Fault::Magic)?;
    let early = Fault::Header { what: "it ends early" };
    let (len, start) = match *rest {
        [1, 0, a, b, ..] => (usize::from(u16::from_le_bytes([a, b])), 10),
        [2 | 3, 0, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 12),
        [1..=3, 0, ..] => return Err(early),
        [major, minor, ..] => return Err(Fault::Version { major, minor }),
        _ => return Err(early),
    };
    if len > LONGEST_HEADER {
        return Err(Fault::Header { what: "it is far too long" });
    }
    let text = bytes.get(start..start + len).ok_or(early)?;
    Ok((text, start + len))
}
