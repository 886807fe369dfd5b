//! Passes, resuming, shards, reuse, errors and the end of the reading thread.

use crate::common::{check_labels, open, range};
use phalanx_data::{
    Batch, Crop, DataError, Dataset, Loaded, Loader, LoaderOptions, PassBatches, Position, Shard, SourceSpec,
    Transform,
};
use phalanx_types::Tensor;
use std::ops::Range;

/// Images whose every pixel, and whose label, is the number of the sample.
fn dataset(len: usize) -> Dataset {
    let x: Vec<f32> = (0..len).flat_map(|i| [i as f32; 4]).collect();
    let x = Tensor::from_f32(vec![len as u64, 1, 2, 2], &x).unwrap();
    Dataset::from_arrays(x, Some(Tensor::from_f32(vec![len as u64], &range(len)).unwrap())).unwrap()
}

fn options() -> LoaderOptions {
    LoaderOptions { batch: 4, seed: 5, shuffle: true, train: true, passes: 3, ..LoaderOptions::default() }
}

fn augmented() -> Transform {
    Transform { crop: Some(Crop { size: None, pad: 1 }), flip: true, ..Transform::default() }
}

fn load(options: LoaderOptions) -> Vec<Loaded> {
    let loader = Loader::new(dataset(23), &augmented(), options).unwrap();
    loader.collect::<Result<_, _>>().unwrap()
}

fn indices(loaded: &[Loaded]) -> Vec<u64> {
    loaded.iter().flat_map(|loaded| loaded.batch.indices.clone()).collect()
}

#[test]
fn every_pass_has_every_sample_once() {
    let all = load(options());
    assert_eq!(all.len(), 3 * 6);
    for pass in 0..3 {
        let pass: Vec<Loaded> = all.iter().filter(|loaded| loaded.pass == pass).cloned().collect();
        assert_eq!(pass.iter().map(|loaded| loaded.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        let mut indices = indices(&pass);
        assert_ne!(indices, (0..23).collect::<Vec<_>>());
        indices.sort_unstable();
        assert_eq!(indices, (0..23).collect::<Vec<_>>());
    }
    assert_eq!(all[5].batch.len, 3);
    assert_eq!(load(LoaderOptions { drop_last: true, ..options() }).len(), 3 * 5);
}

#[test]
fn resuming_gives_what_skipping_gives() {
    let all = load(options());
    for skip in 0..=all.len() {
        let (pass, batch) = (skip as u64 / 6, skip as u64 % 6);
        let start = Position { pass, batch };
        let rest = load(LoaderOptions { start, passes: 3 - pass, ..options() });
        assert_eq!(rest, all[skip..], "{start:?}");
    }
    // The end of a pass is the start of the next.
    let start = Position { pass: 1, batch: 6 };
    assert_eq!(load(LoaderOptions { start, passes: 2, ..options() }), all[12..]);
}

#[test]
fn shards_together_are_the_batch_of_one_reader() {
    let whole = load(LoaderOptions { batch: 6, ..options() });
    let parts: Vec<Vec<Loaded>> = (0..3)
        .map(|i| {
            let shard = Some(Shard::new(23, i, 3).unwrap());
            load(LoaderOptions { batch: 2, shard, ..options() })
        })
        .collect();
    for (k, whole) in whole.iter().enumerate() {
        let mut together: Vec<(u64, &[f32])> = parts
            .iter()
            .flat_map(|part| part[k].batch.indices.iter().copied().zip(part[k].batch.x.chunks_exact(4)))
            .collect();
        let mut expected: Vec<_> =
            whole.batch.indices.iter().copied().zip(whole.batch.x.chunks_exact(4)).collect();
        together.sort_by_key(|(index, _)| *index);
        expected.sort_by_key(|(index, _)| *index);
        assert_eq!(together, expected, "samples and their augmentation");
    }
}

#[test]
fn weighted_shards_cover_a_pass() {
    let mut seen = Vec::new();
    for shard in Shard::weighted(23, &[1.0, 0.0, 2.5]).unwrap() {
        seen.extend(indices(&load(LoaderOptions { shard: Some(shard), passes: 1, ..options() })));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..23).collect::<Vec<_>>());
}

#[test]
fn batches_come_back_to_be_used_again() {
    let mut loader =
        Loader::new(dataset(64), &augmented(), LoaderOptions { passes: 20, ..options() }).unwrap();
    assert_eq!((loader.batches(), loader.x_shape(), loader.y_shape()), (16, &[1, 2, 2][..], Some(&[][..])));
    let mut pointers = std::collections::BTreeSet::new();
    while let Some(loaded) = loader.next() {
        let batch = loaded.unwrap().batch;
        pointers.insert(batch.x.as_ptr() as usize);
        loader.recycle(batch);
    }
    // Two ahead, one in use, one being read, and the memory for crops; some more at the start.
    assert!(pointers.len() <= 8, "{} batches were made for 320", pointers.len());
}

#[test]
fn an_error_reaches_the_consumer_and_ends_it() {
    let mut labels = range(23);
    labels[17] = f32::NAN;
    let x = Tensor::from_f32(vec![23, 1], &range(23)).unwrap();
    let y = Tensor::from_f32(vec![23], &labels).unwrap();
    let options = LoaderOptions { batch: 4, ..LoaderOptions::default() };
    let bad = Dataset::from_arrays(x, Some(y)).unwrap();
    let mut loader = Loader::new(bad, &Transform::default(), options).unwrap();
    for _ in 0..4 {
        assert!(loader.next().unwrap().is_ok());
    }
    assert!(matches!(loader.next(), Some(Err(DataError::LabelNotFinite { row: 17, .. }))));
    assert!(loader.next().is_none());
}

/// A pass over some samples, as they lie.
#[derive(Debug)]
struct Given(Vec<usize>);

impl PassBatches for Given {
    fn samples(&self) -> usize {
        self.0.len()
    }

    fn at(&self, positions: Range<usize>, indices: &mut Vec<usize>) -> Result<(), DataError> {
        indices.extend(&self.0[positions]);
        Ok(())
    }
}

#[test]
fn passes_that_are_given_one_by_one_are_read_by_one_thread() {
    let first = Position { pass: 3, batch: 1 };
    let options = LoaderOptions { batch: 4, start: first, train: true, ..options() };
    let passes = [vec![5, 6, 7, 8, 9, 10], vec![11], (0..9).collect()];
    let of_pass = |number: usize, start| {
        let (options, pass) = (LoaderOptions { start, ..options.clone() }, Given(passes[number].clone()));
        Loader::of_pass(dataset(23), &augmented(), options, Box::new(pass)).unwrap()
    };
    let alone = |number, start| of_pass(number, start).collect::<Result<Vec<_>, _>>().unwrap();
    let mut loader = of_pass(0, first);
    assert!(loader.continue_with(4, Box::new(Given(passes[1].clone()))));
    let together: Vec<_> = loader.by_ref().collect::<Result<_, _>>().unwrap();
    let expected = [alone(0, first), alone(1, Position { pass: 4, batch: 0 })].concat();
    assert_eq!((together.len(), &together), (2, &expected));
    assert!(loader.next().is_none(), "it does not wait for a pass that was not given");
    // Also after it was empty.
    assert!(loader.continue_with(5, Box::new(Given(passes[2].clone()))));
    assert_eq!(
        loader.by_ref().collect::<Result<Vec<_>, _>>().unwrap(),
        alone(2, Position { pass: 5, batch: 0 })
    );
    let mut fixed = Loader::new(dataset(23), &augmented(), options.clone()).unwrap();
    assert!(!fixed.continue_with(4, Box::new(Given(vec![1]))));
}

#[test]
fn dropping_it_ends_the_thread() {
    for taken in 0..4 {
        let endless = LoaderOptions { passes: u64::MAX, ..options() };
        let data = dataset(23);
        let mut loader = Loader::new(data, &augmented(), endless).unwrap();
        for _ in 0..taken {
            loader.next().unwrap().unwrap();
        }
        // Joins the thread: this test would hang if it went on.
        drop(loader);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let new = |options| Loader::new(dataset(23), &Transform::default(), options);
    assert!(matches!(new(LoaderOptions { batch: 0, ..options() }), Err(DataError::EmptyBatch)));
    let foreign = Some(Shard::whole(24));
    assert!(matches!(new(LoaderOptions { shard: foreign, ..options() }), Err(DataError::Index { .. })));
    let none = LoaderOptions { batch: 100, drop_last: true, ..options() };
    assert!(new(none).unwrap().next().is_none());
    let huge = LoaderOptions { batch: usize::MAX, passes: 1, ..options() };
    assert_eq!(new(huge).unwrap().next().unwrap().unwrap().batch.len, 23);
}

#[test]
fn the_digits_of_the_example_open() {
    let base = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let spec = SourceSpec {
        x: Some("x_train".into()),
        y: Some("y_train".to_owned()),
        ..SourceSpec::file("digits.npz")
    };
    let digits = Dataset::open(&spec, &base).unwrap();
    assert_eq!((digits.fixed_len().unwrap(), digits.x_shape()), (1078, &[1, 8, 8][..]));
    check_labels(&digits, 10).unwrap();
    let test = open("../../../../examples/digits/digits.npz", "x_test", "y_test").unwrap();
    let mut batch = Batch::new();
    test.read(&[718], &mut batch).unwrap();
    assert_eq!((test.fixed_len().unwrap(), batch.x.len()), (719, 64));
}
