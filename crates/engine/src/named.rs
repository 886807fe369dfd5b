//! Settings that users write as a word, or as a table with a name and options.
//!
//! `loss = "huber"` is `loss = { name = "huber" }` with the default options.

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::marker::PhantomData;

/// Reads a word as a table with only this name.
pub(crate) fn word_or_table<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromTable<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(WordOrTable(PhantomData))
}

/// Parses a table with a `name`.
pub(crate) trait FromTable<'de>: Sized {
    fn from_table<D: Deserializer<'de>>(table: D) -> Result<Self, D::Error>;
}

struct WordOrTable<T>(PhantomData<T>);

impl<'de, T: FromTable<'de>> Visitor<'de> for WordOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name, or a table with a `name`")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        T::from_table(MapDeserializer::new([("name", word)].into_iter()))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<T, A::Error> {
        T::from_table(MapAccessDeserializer::new(table))
    }
}

/// Parses a setting from its word alone.
pub(crate) fn from_word<T: for<'de> Deserialize<'de>>(word: &str) -> Option<T> {
    let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        serde::de::IntoDeserializer::into_deserializer(word);
    T::deserialize(word).ok()
}

/// Makes a type whose derived serde is `remote = "Self"` readable from a word or a table.
macro_rules! named {
    ($type:ty) => {
        impl<'de> $crate::named::FromTable<'de> for $type {
            fn from_table<D: serde::Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
                <$type>::deserialize(table)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::named::word_or_table(deserializer)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }
    };
}

pub(crate) use named;
