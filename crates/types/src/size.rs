use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes in human-readable form: `8 GiB`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl ByteSize {
    pub fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    pub fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = UNITS.into_iter().find(|(_, scale)| self.0 >= *scale).unwrap_or(("B", 1));
        let text = if self.0.is_multiple_of(scale) {
            format!("{} {unit}", self.0 / scale)
        } else {
            format!("{:.1} {unit}", self.0 as f64 / scale as f64)
        };
        f.pad(&text)
    }
}

/// Why a piece of text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a size like 8GiB, 512MiB or 1000, not {0:?}")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let wrong = || ParseSizeError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self).ok_or_else(wrong);
        }
        let Ok(fraction) = number.parse::<f64>() else { return Err(wrong()) };
        let bytes = fraction * scale as f64;
        if bytes >= 0.0 && bytes < u64::MAX as f64 { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in
            [("8GiB", 8 << 30), ("1.5 KiB", 1536), ("10", 10), ("2kb", 2000), ("0B", 0), ("3g", 3 << 30)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap().0, bytes, "{text}");
        }
        for bad in ["", "x", "8 XiB", "-1", "99999999999TiB", "1.2.3"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_print_short() {
        assert_eq!(ByteSize::gib(12).to_string(), "12 GiB");
        assert_eq!(ByteSize(1536).to_string(), "1.5 KiB");
        assert_eq!(ByteSize(0).to_string(), "0 B");
    }
}
