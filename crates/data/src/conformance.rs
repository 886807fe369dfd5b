//! A test suite for the contract of [`Source`], for the tests of any source.
//!
//! ```
//! use phalanx_data::{Source, conformance::source_conformance};
//! # use phalanx_data::{DataError, Extent, Origin, Rows, Schema};
//! # use std::sync::atomic::AtomicBool;
//! # #[derive(Debug)]
//! # struct Mine;
//! # impl Source for Mine {
//! #     fn schema(&self) -> Schema { Schema::new([1], Origin::named("mine")) }
//! #     fn extent(&self) -> Extent { Extent::Fixed(2) }
//! #     fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
//! #         if let Some(index) = indices.iter().copied().find(|index| *index > 1) {
//! #             return Err(DataError::Index { index, len: 2, origin: Origin::named("mine") });
//! #         }
//! #         rows.x.into_iter().flatten().zip(indices).for_each(|(x, index)| *x = *index as f32);
//! #         Ok(())
//! #     }
//! # }
//! source_conformance(|| Box::new(Mine));
//! ```

use crate::error::DataError;
use crate::labels::class;
use crate::source::{Extent, Meaning, Rows, Schema, Source};
use std::sync::atomic::{AtomicBool, Ordering};

/// The most samples of a source that are checked.
const SAMPLES: usize = 200;
/// Threads that read at once.
const READERS: usize = 4;
/// The content of memory before a source writes into it: different in every read, so that an element that is not
/// written differs between two reads.
const STALE: [f32; 2] = [-7.75e33, 3.25e-33];

/// Checks that a source fulfils the contract of [`Source`]; `make` must create the same source each time.
///
/// The samples must be valid: a source with a broken label fails here.
///
/// # Panics
/// The source violates the contract; the message says how.
pub fn source_conformance(make: impl Fn() -> Box<dyn Source>) {
    let suite = Suite::new(make());
    suite.description(&*make());
    suite.reading();
    suite.parts_alone();
    suite.out_of_range();
    suite.stopping();
    suite.concurrent();
    suite.labels();
    suite.same_again(&Suite::new(make()));
    suite.growth();
}

/// A source, and its initial description.
struct Suite {
    source: Box<dyn Source>,
    schema: Schema,
    extent: Extent,
    x_size: usize,
    y_size: usize,
    /// The samples that are looked at.
    indices: Vec<usize>,
}

/// Samples and labels as bits, so that NaN equals itself.
#[derive(Debug, Clone, Default, PartialEq)]
struct Read {
    x: Vec<u32>,
    y: Vec<u32>,
}

/// Which parts of samples to read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Parts {
    Both,
    Samples,
    Labels,
}

impl Suite {
    fn new(source: Box<dyn Source>) -> Self {
        let (schema, extent) = (source.schema(), source.extent());
        let (x_size, y_size) = match schema.sizes() {
            Ok(sizes) => sizes,
            Err(error) => panic!("the description of {source:?} is not one of samples: {error}"),
        };
        let len = extent.available();
        let indices = (0..len).step_by(len.div_ceil(SAMPLES).max(1)).collect();
        Self { source, schema, extent, x_size, y_size, indices }
    }

    fn try_read(&self, indices: &[usize], parts: Parts, stop: &AtomicBool) -> Result<Read, DataError> {
        let mut twice = Vec::new();
        for stale in STALE {
            let mut x = vec![stale; indices.len() * self.x_size];
            let mut y = vec![stale; indices.len() * self.y_size];
            let rows = Rows {
                x: (parts != Parts::Labels).then_some(&mut x[..]),
                y: (parts != Parts::Samples && self.schema.labels.is_some()).then_some(&mut y[..]),
            };
            self.source.read(indices, rows, stop)?;
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
            twice.push(Read {
                x: if parts == Parts::Labels { Vec::new() } else { bits(&x) },
                y: if parts == Parts::Samples { Vec::new() } else { bits(&y) },
            });
        }
        let again = twice.pop();
        let first = twice.pop().unwrap_or_default();
        if !stop.load(Ordering::Relaxed) {
            assert!(
                again.as_ref() == Some(&first),
                "reading {} samples twice gave different values, or left some places out",
                indices.len()
            );
        }
        Ok(first)
    }

    fn read(&self, indices: &[usize], parts: Parts) -> Read {
        match self.try_read(indices, parts, &AtomicBool::new(false)) {
            Ok(read) => read,
            Err(error) => panic!("could not read {indices:?}: {error}"),
        }
    }

    /// The samples of one read, reordered by other indices that were all read.
    fn pick(&self, all: &Read, indices: &[usize]) -> Read {
        let mut picked = Read::default();
        for index in indices {
            let Ok(at) = self.indices.binary_search(index) else { panic!("sample {index} was not read") };
            picked.x.extend(&all.x[at * self.x_size..(at + 1) * self.x_size]);
            picked.y.extend(&all.y[at * self.y_size..(at + 1) * self.y_size]);
        }
        picked
    }

    fn description(&self, other: &dyn Source) {
        assert_eq!(self.schema, self.source.schema(), "the description changed");
        assert_eq!(self.schema, other.schema(), "the same source describes itself in two ways");
        assert_ne!(self.extent, Extent::Fixed(0), "a source that is complete has samples");
        if let Some(names) = self.schema.labels.as_ref().and_then(|labels| labels.names()) {
            let mut sorted: Vec<&String> = names.iter().collect();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), names.len(), "two classes have the same name: {names:?}");
        }
    }

    /// Any order, with repetitions, alone or together, gives the same samples.
    fn reading(&self) {
        let all = self.read(&self.indices, Parts::Both);
        let backwards: Vec<usize> = self.indices.iter().rev().copied().collect();
        let doubled: Vec<usize> = self.indices.iter().take(5).flat_map(|index| [*index; 3]).collect();
        let mixed: Vec<usize> =
            self.indices.iter().skip(1).step_by(2).chain(&self.indices).copied().collect();
        for indices in [&self.indices, &backwards, &doubled, &mixed] {
            let expected = self.pick(&all, indices);
            assert!(self.read(indices, Parts::Both) == expected, "the order {indices:?} changes the samples");
        }
        for index in self.indices.iter().take(8) {
            let expected = self.pick(&all, &[*index]);
            assert!(self.read(&[*index], Parts::Both) == expected, "sample {index} alone is another");
        }
        assert_eq!(self.read(&[], Parts::Both), Read::default());
    }

    /// Samples without labels and labels without samples are the same as together.
    fn parts_alone(&self) {
        let all = self.read(&self.indices, Parts::Both);
        assert!(self.read(&self.indices, Parts::Samples).x == all.x, "samples differ without their labels");
        assert!(self.read(&self.indices, Parts::Labels).y == all.y, "labels differ without their samples");
    }

    fn out_of_range(&self) {
        let first = self.indices.first().copied();
        let past = match self.extent {
            Extent::Fixed(len) => vec![len, len.saturating_add(1), usize::MAX],
            Extent::Growing { .. } => vec![usize::MAX],
        };
        for index in past {
            for parts in [Parts::Both, Parts::Samples, Parts::Labels] {
                if parts == Parts::Labels && self.schema.labels.is_none() {
                    continue;
                }
                let indices: Vec<usize> = first.into_iter().chain([index]).collect();
                match self.try_read(&indices, parts, &AtomicBool::new(false)) {
                    Err(DataError::Index { index: named, .. }) => {
                        assert_eq!(named, index, "another index is named")
                    }
                    Err(error) => panic!("{parts:?} of sample {index}, which is not there: {error}"),
                    Ok(_) => panic!("{parts:?} of sample {index}, which is not there, were read"),
                }
            }
        }
    }

    /// An interrupted read returns, and the source is readable afterwards.
    fn stopping(&self) {
        drop(self.try_read(&self.indices, Parts::Both, &AtomicBool::new(true)));
        self.read(&self.indices, Parts::Both);
    }

    fn concurrent(&self) {
        let all = &self.read(&self.indices, Parts::Both);
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                scope.spawn(move || {
                    let mut indices = self.indices.clone();
                    let turn = indices.len() * reader / READERS;
                    indices.rotate_left(turn);
                    let expected = self.pick(all, &indices);
                    assert!(self.read(&indices, Parts::Both) == expected, "readers disturb each other");
                });
            }
        });
    }

    fn labels(&self) {
        let Some(labels) = &self.schema.labels else { return };
        let read = self.read(&self.indices, Parts::Labels);
        for (at, bits) in read.y.iter().enumerate() {
            let label = f32::from_bits(*bits);
            let index = self.indices.get(at / self.y_size).copied().unwrap_or_default();
            assert!(label.is_finite(), "the label of sample {index} is {label}");
            if let Meaning::Classes { names } = &labels.meaning {
                let classes = names.as_ref().map_or(usize::MAX, Vec::len);
                let known = class(label, classes).is_some();
                assert!(known, "the label of sample {index} is {label}, which is no class");
            }
        }
    }

    fn same_again(&self, other: &Self) {
        let both: Vec<usize> =
            self.indices.iter().copied().filter(|index| other.indices.binary_search(index).is_ok()).collect();
        let same = self.read(&both, Parts::Both) == other.read(&both, Parts::Both);
        assert!(same, "the same source made anew has other samples");
    }

    fn growth(&self) {
        let mut before = self.extent;
        for _ in 0..3 {
            let after = self.source.extent();
            match (before, after) {
                (Extent::Fixed(_), _) => assert_eq!(before, after, "a fixed length changed"),
                (Extent::Growing { now }, after) => {
                    assert!(after.available() >= now, "the source shrank from {now} to {after:?}");
                }
            }
            before = after;
        }
        // Samples that were available still are.
        self.read(&self.indices, Parts::Both);
    }
}
