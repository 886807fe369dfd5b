//! The header of an npy file: a Python dictionary with three entries, as text.

use crate::array::Layout;
use phalanx_types::DType;

/// Why a header cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    Syntax(&'static str),
    Type(String),
}

use HeaderError::Syntax;

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, with its entries in any order.
pub(super) fn parse(text: &[u8]) -> Result<Layout, HeaderError> {
    let mut rest = Text(text);
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    rest.expect(b'{', "no dictionary")?;
    while !rest.take(b'}') {
        let key = rest.string()?;
        rest.expect(b':', "no colon after a key")?;
        match key {
            b"descr" if descr.is_none() => descr = Some(rest.descr()?),
            b"fortran_order" if fortran.is_none() => fortran = Some(rest.boolean()?),
            b"shape" if shape.is_none() => shape = Some(rest.tuple()?),
            _ => return Err(Syntax("a key that is unknown or there twice")),
        }
        if !rest.take(b',') {
            rest.expect(b'}', "no end of the dictionary")?;
            break;
        }
    }
    rest.skip_spaces();
    if !rest.0.is_empty() {
        return Err(Syntax("something after the dictionary"));
    }
    match (descr, fortran, shape) {
        (Some((dtype, big_endian)), Some(fortran), Some(shape)) => {
            Ok(Layout { dtype, big_endian, fortran, shape })
        }
        _ => Err(Syntax("a key is missing")),
    }
}

struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8, otherwise: &'static str) -> Result<(), HeaderError> {
        if self.take(byte) { Ok(()) } else { Err(Syntax(otherwise)) }
    }

    fn split(&mut self, at: usize) -> Result<&'a [u8], HeaderError> {
        let (taken, rest) = self.0.split_at_checked(at).ok_or(Syntax("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn string(&mut self) -> Result<&'a [u8], HeaderError> {
        let quote = if self.take(b'\'') {
            b'\''
        } else if self.take(b'"') {
            b'"'
        } else {
            return Err(Syntax("no string where one is due"));
        };
        let end = self.0.iter().position(|b| *b == quote).ok_or(Syntax("a string without end"))?;
        let string = self.split(end)?;
        self.split(1)?;
        Ok(string)
    }

    fn word(&mut self) -> Result<&'a [u8], HeaderError> {
        self.skip_spaces();
        let end = self.0.iter().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(self.0.len());
        self.split(end)
    }

    fn boolean(&mut self) -> Result<bool, HeaderError> {
        match self.word()? {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => Err(Syntax("fortran_order is neither True nor False")),
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, HeaderError> {
        /// numpy's limit of dimensions.
        const MOST: usize = 64;
        self.expect(b'(', "the shape is not a tuple")?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            let digits = self.word()?;
            // Python 2 wrote long integers with an L.
            let digits = digits.strip_suffix(b"L").unwrap_or(digits);
            let number =
                std::str::from_utf8(digits).ok().filter(|d| !d.is_empty()).and_then(|d| d.parse().ok());
            shape.push(number.ok_or(Syntax("a dimension that is no number or too large"))?);
            if shape.len() > MOST {
                return Err(Syntax("too many dimensions"));
            }
            if !self.take(b',') {
                self.expect(b')', "no end of the shape")?;
                break;
            }
        }
        Ok(shape)
    }

    /// The element type, and whether its bytes are in big-endian order.
    fn descr(&mut self) -> Result<(DType, bool), HeaderError> {
        self.skip_spaces();
        if self.0.first() == Some(&b'[') {
            return Err(HeaderError::Type("structure".to_owned()));
        }
        let descr = self.string()?;
        let unknown =
            || HeaderError::Type(String::from_utf8_lossy(descr.get(..32).unwrap_or(descr)).into_owned());
        let (order, kind) = match descr.split_first() {
            Some((order @ (b'<' | b'>' | b'|' | b'='), kind)) => (*order, kind),
            _ => (b'|', descr),
        };
        let dtype = match kind {
            b"f2" => DType::F16,
            b"f4" => DType::F32,
            b"f8" => DType::F64,
            b"i1" => DType::I8,
            b"i2" => DType::I16,
            b"i4" => DType::I32,
            b"i8" => DType::I64,
            b"u1" => DType::U8,
            b"u2" => DType::U16,
            b"u4" => DType::U32,
            b"u8" => DType::U64,
            b"b1" | b"?" => DType::Bool,
            _ => return Err(unknown()),
        };
        Ok((dtype, order == b'>'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_numpy_writes_them_are_read() {
        let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n";
        assert_eq!(parse(header).unwrap(), Layout::row_major(DType::F32, vec![3, 4]));
        let header = b"{\"shape\":(7L,),'descr':'>i2','fortran_order':True}";
        let layout = Layout { dtype: DType::I16, big_endian: true, fortran: true, shape: vec![7] };
        assert_eq!(parse(header).unwrap(), layout);
        assert_eq!(parse(b"{'descr':'|b1','fortran_order':False,'shape':()}").unwrap().shape, [0usize; 0]);
    }

    #[test]
    fn other_headers_are_refused() {
        for bad in [
            "",
            "{",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
            "{'descr': '<f4",
        ] {
            assert!(matches!(parse(bad.as_bytes()), Err(Syntax(_))), "{bad}");
        }
        for (descr, name) in [("'<U5'", "<U5"), ("'|O'", "|O"), ("[('a', '<f4')]", "structure")] {
            let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}");
            assert_eq!(parse(header.as_bytes()), Err(HeaderError::Type(name.to_owned())));
        }
    }
}
