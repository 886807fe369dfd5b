//! The names of the compression methods.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How gradients are compressed before they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    #[default]
    None,
    F16,
    Bf16,
    /// One byte a value and a scale for every 256 values.
    Int8,
    /// Only the values of greatest magnitude: `per_mille` of a thousand, at least one.
    TopK {
        per_mille: u32,
    },
}

impl Compression {
    /// The meaning of a bare `topk`: one value of a hundred.
    const TOPK: Compression = Compression::TopK { per_mille: 10 };

    /// Bytes of `elements` encoded values.
    pub fn encoded_len(self, elements: usize) -> usize {
        super::encoded_len(self, elements)
    }

    /// Appends the compressed values to `out`, without feedback.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        super::encode(self, values, None, out);
    }

    /// Decodes into `out`, which is unchanged on an error.
    ///
    /// # Errors
    /// The bytes are not an encoding of that number of values.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), super::DecodeError> {
        super::decode(self, bytes, out)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::F16 => f.write_str("f16"),
            Compression::Bf16 => f.write_str("bf16"),
            Compression::Int8 => f.write_str("int8"),
            Compression::TopK { per_mille } => write!(f, "topk:{}", f64::from(*per_mille) / 1000.0),
        }
    }
}

/// Why a text does not name a compression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCompressionError {
    #[error("expected none, f16, bf16, int8, topk or topk:0.01, not {text:?}")]
    Word { text: String },
    #[error("topk takes a part from 0.001 to 1 in steps of 0.001, not {text:?}")]
    Part { text: String },
}

impl FromStr for Compression {
    type Err = ParseCompressionError;

    fn from_str(text: &str) -> Result<Self, ParseCompressionError> {
        match text.trim() {
            "none" => Ok(Compression::None),
            "f16" => Ok(Compression::F16),
            "bf16" => Ok(Compression::Bf16),
            "int8" => Ok(Compression::Int8),
            "topk" => Ok(Compression::TOPK),
            other => match other.strip_prefix("topk:") {
                Some(part) => match per_mille(part) {
                    Some(per_mille) => Ok(Compression::TopK { per_mille }),
                    None => Err(ParseCompressionError::Part { text: part.to_owned() }),
                },
                None => Err(ParseCompressionError::Word { text: text.to_owned() }),
            },
        }
    }
}

fn per_mille(part: &str) -> Option<u32> {
    let exact = part.trim().parse::<f64>().ok()? * 1000.0;
    let whole = exact.round();
    ((1.0..=1000.0).contains(&whole) && (exact - whole).abs() < 1e-9).then_some(whole as u32)
}

impl TryFrom<String> for Compression {
    type Error = ParseCompressionError;

    fn try_from(text: String) -> Result<Self, ParseCompressionError> {
        text.parse()
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> String {
        compression.to_string()
    }
}
