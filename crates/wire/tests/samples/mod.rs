//! One of each message: for golden bytes, fuzz seeds and documentation.
//!
//! A sample of an enum deeper inside a message is the smallest message that carries it. Samples
//! are named after the variant they stand for, and [`Samples::each`] refuses a list that lacks
//! one, so a new variant cannot go without its golden bytes.

mod fabric;
mod handshake;
mod jobs;
mod launch;
mod live;
mod measure;
mod raw;
mod relay;
mod train;
mod trial;

pub(crate) use raw::raw;

use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_types::{ByteSize, NodeId, RunId};
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::frame::{self, FrameKind};
use phalanx_wire::usage::{Holder, NodeUse};
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use std::any::type_name;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A frame with one message in it.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) kind: FrameKind,
    /// The whole frame, header and body.
    pub(crate) frame: Bytes,
    /// Decodes a body as this sample's message and encodes it again.
    pub(crate) round_trip: fn(&[u8]) -> Result<BytesMut, CodecError>,
}

/// What may stand in a frame of its own.
trait Message: Serialize + DeserializeOwned + PartialEq + Debug {
    const KIND: FrameKind;

    fn frame(&self) -> Bytes {
        let mut out = BytesMut::new();
        frame::put(Self::KIND, self, &mut out).expect("a sample fits its frame");
        out.freeze()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let message: Self = codec::decode(body)?;
        Ok(assert_stable(&message, body))
    }
}

/// Samples as they are collected, and the enums they are known to cover.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) list: Vec<Sample>,
    pub(crate) covered: BTreeSet<&'static str>,
}

impl Samples {
    fn one<M: Message>(&mut self, name: &str, message: &M) {
        let frame = message.frame();
        self.list.push(Sample { name: name.into(), kind: M::KIND, frame, round_trip: M::round_trip });
    }

    /// A sample for each value, `<prefix>-<variant>`; panics when a variant of `T` is missing.
    fn each<T, M>(&mut self, prefix: &str, values: impl IntoIterator<Item = T>, wrap: impl Fn(T) -> M)
    where
        T: DeserializeOwned + Debug,
        M: Message,
    {
        let mut seen = BTreeSet::new();
        for value in values {
            let word = variant_of(&value);
            self.one(&format!("{prefix}-{word}"), &wrap(value));
            seen.insert(word);
        }
        self.cover::<T>(&seen);
    }

    /// Notes that all variants of `T` are among the samples.
    fn cover<T: DeserializeOwned>(&mut self, seen: &BTreeSet<String>) {
        let enum_name = type_name::<T>().rsplit("::").next().unwrap_or_default();
        let missing: Vec<_> =
            variants_of::<T>().into_iter().filter(|word| !seen.contains(&kebab(word))).collect();
        assert!(missing.is_empty(), "no sample of {missing:?} of {enum_name}");
        self.covered.insert(enum_name);
    }
}

/// All samples.
pub(crate) fn all() -> Samples {
    let mut samples = Samples::default();
    handshake::add(&mut samples);
    fabric::add(&mut samples);
    relay::add(&mut samples);
    jobs::add(&mut samples);
    launch::add(&mut samples);
    live::add(&mut samples);
    measure::add(&mut samples);
    train::add(&mut samples);
    trial::add(&mut samples);
    samples
}

fn node(name: &str) -> NodeId {
    NodeId::with_suffix(name, 0x4f3a).expect("sample names are names")
}

/// Holders of ranks, and the store.
fn later_uses() -> [NodeUse; 3] {
    let part = |holder| NodeUse { holder, cores: 2, memory: ByteSize(0) };
    let launcher = node("launch");
    [
        part(Holder::Rank { launcher: launcher.clone() }),
        part(Holder::WaitingRank { launcher }),
        part(Holder::Store),
    ]
}

/// One of each other holder.
fn uses() -> [NodeUse; 4] {
    let (run, driver) = (RunId(0x0123_4567_89ab_cdef), node("driver"));
    let part = |holder, cores| NodeUse { holder, cores, memory: ByteSize::gib(2) };
    [
        part(Holder::Jobs { running: 3 }, 3),
        part(Holder::Run { run, driver: driver.clone() }, 8),
        part(Holder::WaitingRun { run, driver }, 300),
        part(Holder::Others { holders: 2 }, 2),
    ]
}

/// The variant of an enum's value, as its `Debug` tells.
fn variant_of<T: Debug>(value: &T) -> String {
    let text = format!("{value:?}");
    kebab(text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default())
}

fn kebab(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The names of all variants of `T`, which the derived code hands to any deserializer.
///
/// A `match` without a `_` arm would be plainer, but outside of their crate the enums that are
/// `non_exhaustive` demand that arm.
fn variants_of<T: DeserializeOwned>() -> Vec<&'static str> {
    let mut variants = Vec::new();
    // The error is how the deserializer stops after it has seen the names.
    assert!(T::deserialize(Variants(&mut variants)).is_err());
    assert!(!variants.is_empty(), "{} is not an enum", type_name::<T>());
    variants
}

struct Variants<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Variants<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        Err(ValueError::custom("not an enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ValueError> {
        self.0.extend(variants);
        Err(ValueError::custom("only the names are wanted"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
