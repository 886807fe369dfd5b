//! Which sizes the pages of a column declare, read from their headers before the decoder allocates by them.
//!
//! A header is a structure of Thrift's compact protocol; only its second and third fields matter here.

/// What a page says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageSize {
    pub(super) inflated: u64,
    compressed: u64,
}

/// The sizes of all pages in the bytes of a column; `None` behind a header that is broken.
pub(super) fn pages(column: &[u8]) -> impl Iterator<Item = Option<PageSize>> {
    let mut rest = column;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut header = Compact(rest);
        let page = header.page();
        let next = page.and_then(|page| header.0.get(usize::try_from(page.compressed).ok()?..));
        rest = next.unwrap_or_default();
        Some(page.filter(|_| next.is_some()))
    })
}

/// The deepest structure in a header.
const MOST_NESTED: usize = 8;

/// Bytes of the compact protocol.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    fn page(&mut self) -> Option<PageSize> {
        let (mut inflated, mut compressed, mut field) = (None, None, 0);
        loop {
            match self.field(&mut field)? {
                0 => break,
                // 32 bits with a sign.
                5 if field == 2 => inflated = Some(self.int()?),
                5 if field == 3 => compressed = Some(self.int()?),
                kind => self.skip(kind, 0)?,
            }
        }
        let size = |number: Option<i64>| u64::try_from(number?).ok();
        Some(PageSize { inflated: size(inflated)?, compressed: size(compressed)? })
    }

    /// The type of the next field, whose number is put into `field`; 0 at the end of a structure.
    fn field(&mut self, field: &mut i64) -> Option<u8> {
        let byte = self.byte()?;
        match (byte & 15, byte >> 4) {
            (0, _) => {}
            (_, 0) => *field = self.int()?,
            (_, step) => *field = field.checked_add(step.into())?,
        }
        Some(byte & 15)
    }

    fn skip(&mut self, kind: u8, nested: usize) -> Option<()> {
        let nested = Some(nested + 1).filter(|nested| *nested <= MOST_NESTED)?;
        match kind {
            // A boolean field has its value in its type.
            1 | 2 => Some(()),
            3 => self.bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.bytes(8),
            8 => {
                let len = self.varint()?;
                self.bytes(len)
            }
            9 | 10 => {
                let byte = self.byte()?;
                let len = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                // Elements that are booleans take a byte each.
                let kind = if matches!(byte & 15, 1 | 2) { 3 } else { byte & 15 };
                (0..len).try_for_each(|_| self.skip(kind, nested))
            }
            12 => {
                let mut field = 0;
                loop {
                    match self.field(&mut field)? {
                        0 => return Some(()),
                        kind => self.skip(kind, nested)?,
                    }
                }
            }
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn bytes(&mut self, len: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn int(&mut self) -> Option<i64> {
        self.varint().map(|n| (n >> 1) as i64 ^ -((n & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header that says 300 bytes in 2, with a structure, a text and a list of structures, and its 2 bytes.
    const PAGE: &[u8] = &[
        0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x04, 0x2c, 0x15, 0x06, 0x11, 0x18, 0x01, b'x', 0x19, 0x1c, 0x15,
        2, 0, 0, 0, 9, 9,
    ];

    #[test]
    fn sizes_are_found_behind_everything_else() {
        let sizes: Vec<_> = pages(&PAGE.repeat(2)).collect();
        assert_eq!(sizes, [Some(PageSize { inflated: 300, compressed: 2 }); 2]);
    }

    #[test]
    fn broken_headers_end_the_pages() {
        for cut in 1..PAGE.len() {
            assert_eq!(pages(&PAGE[..cut]).collect::<Vec<_>>(), [None], "{cut}");
        }
        let endless = [0x1c; 100];
        assert_eq!(pages(&endless).last(), Some(None));
        assert_eq!(pages(&[0xff; 50]).last(), Some(None));
    }
}
