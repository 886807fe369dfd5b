//! The text of an error from elsewhere, of bounded length.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;

/// What a library or the system said about an error, in its own words.
///
/// No decision may depend on it. A longer text is cut when a detail is made; a peer that sends a longer one has sent
/// something that cannot be decoded.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Detail(String);

impl Detail {
    /// The most bytes of a detail.
    pub const MAX: usize = 4 << 10;

    /// Keeps as much of a text as a detail can hold.
    pub fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Self::MAX));
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Deref for Detail {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Detail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Detail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of at most {} bytes", Detail::MAX)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Detail, E> {
                match text.len() <= Detail::MAX {
                    true => Ok(Detail(text.to_owned())),
                    false => Err(E::invalid_length(text.len(), &self)),
                }
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// For fields of type `String` that hold a text of at most `MAX` bytes: cut when it is sent, refused when a longer one
/// comes.
///
/// The bytes are those of a plain string. Used as `#[serde(with = "Bounded::<{ Detail::MAX }>")]`.
#[derive(Debug)]
pub struct Bounded<const MAX: usize>;

impl<const MAX: usize> Bounded<MAX> {
    /// Writes as much of a text as is allowed.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text.get(..text.floor_char_boundary(MAX)).unwrap_or_default())
    }

    /// Reads a text.
    ///
    /// # Errors
    /// It is no text, or longer than allowed.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        struct Text(usize);

        impl Visitor<'_> for Text {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of at most {} bytes", self.0)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
                match text.len() <= self.0 {
                    true => Ok(text.to_owned()),
                    false => Err(E::invalid_length(text.len(), &self)),
                }
            }
        }

        deserializer.deserialize_str(Text(MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use bytes::BytesMut;

    fn encoded(text: &str) -> BytesMut {
        let mut out = BytesMut::new();
        codec::encode_into(&text, &mut out).unwrap();
        out
    }

    #[test]
    fn a_long_text_is_cut_when_it_is_made_and_refused_when_it_comes() {
        let longest = "x".repeat(Detail::MAX);
        assert_eq!(Detail::new(longest.clone() + "y").as_str(), longest);
        // Two bytes each, from an odd place on: the last one does not fit.
        let umlauts = format!("x{}", "ä".repeat(Detail::MAX));
        assert_eq!(Detail::new(umlauts).len(), Detail::MAX - 1);
        assert_eq!(codec::decode(&encoded(&longest)), Ok(Detail::new(longest.clone())));
        assert!(codec::decode::<Detail>(&encoded(&(longest + "y"))).is_err());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note(#[serde(with = "Bounded::<8>")] String);

    #[test]
    fn a_bounded_field_has_the_bytes_of_a_string_and_is_cut_when_it_is_sent() {
        let mut out = BytesMut::new();
        codec::encode_into(&Note("12345678 and more".to_owned()), &mut out).unwrap();
        assert_eq!(out, encoded("12345678"));
        assert_eq!(codec::decode(&out), Ok(Note("12345678".to_owned())));
        assert!(codec::decode::<Note>(&encoded("123456789")).is_err());
    }
}
