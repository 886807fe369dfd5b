//! Every source fulfils the contract of the trait, including custom ones.

use crate::common::{corpus, range, read_all, spec};
use crate::images::folder;
use phalanx_data::conformance::source_conformance;
use phalanx_data::{
    Batch, DataError, Dataset, Extent, Format, LabelCheck, LabelSchema, Labels, Loader, LoaderOptions,
    Origin, Rows, Schema, Source, SourceSpec, Target, Transform,
};
use phalanx_types::{DType, Tensor};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn conforms(make: impl Fn() -> Dataset) {
    source_conformance(|| Box::new(Arc::clone(make().source())));
}

#[test]
fn arrays_in_memory_conform() {
    let x = || Tensor::from_f32(vec![301, 2, 3], &range(301 * 6)).unwrap();
    let y = || Tensor::from_f32(vec![301, 2], &range(602)).unwrap();
    conforms(|| Dataset::from_arrays(x(), None).unwrap());
    conforms(|| Dataset::from_arrays(x(), Some(y())).unwrap());
    conforms(|| Dataset::from_f32(range(60), &[3, 4], vec![0usize, 2, 1, 1, 7]).unwrap());
    conforms(|| Dataset::from_f32(range(9), &[], range(18)).unwrap());
    conforms(|| Dataset::from_f32(vec![f32::NAN, 1.0], &[1], Labels::None).unwrap());
}

#[test]
fn files_of_every_format_conform() {
    let of_labels =
        |file: &str, labels: &str| SourceSpec { labels_file: Some(labels.into()), ..SourceSpec::file(file) };
    let specs = [
        (Format::Npy, of_labels("npy/fortran_be.npy", "npy/labels.npy")),
        (Format::Npy, SourceSpec::file("npy/be_i8.npy")),
        (Format::Npz, spec("npz/stored.npz", "x_train", "y_train")),
        (Format::Npz, spec("npz/deflated.npz", "x_train", "y_train")),
        (Format::Idx, of_labels("idx/images-idx3-ubyte.gz", "idx/labels-idx1-ubyte")),
        (Format::Csv, spec("csv/header.csv", "", "label")),
        (Format::Safetensors, spec("safetensors/two.safetensors", "x", "y")),
        #[cfg(feature = "parquet")]
        (Format::Parquet, spec("parquet/many.parquet", "", "a")),
    ];
    for (format, spec) in specs {
        let open = || {
            let spec = SourceSpec { format: Some(format), ..spec.clone() };
            Dataset::open(&spec, &corpus()).unwrap()
        };
        conforms(open);
    }
}

#[test]
fn tables_with_names_of_classes_conform() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.csv"), "a,b,what\n1,2,cat\n3,4,ant\n5,6,bee\n7,8,cat\n").unwrap();
    let open = || Dataset::open(&spec("a.csv", "", "what"), dir.path()).unwrap();
    conforms(open);
    // Other numbering of classes does not change the samples.
    let classes = ["cat", "dog", "bee", "ant"].map(str::to_owned);
    let renumbered = open().with_classes(&classes).unwrap();
    assert_eq!(read_all(&open()).unwrap().y, [2.0, 0.0, 1.0, 2.0]);
    assert_eq!(read_all(&renumbered).unwrap().y, [0.0, 3.0, 2.0, 0.0]);
    let checked = renumbered.with_label_check(LabelCheck::Classes(3));
    assert!(matches!(
        read_all(&checked),
        Err(DataError::LabelOutOfRange { row: 1, classes: 3, label: 3.0, .. })
    ));
    assert!(read_all(&checked.without_labels()).unwrap().y.is_empty());
}

#[test]
fn folders_of_images_conform() {
    let dir = folder(&[
        ("b", "2.png", "gray.png"),
        ("a", "1.png", "colour.png"),
        ("b", "1.png", "deep.png"),
        ("c", "x.jpg", "gray.jpg"),
    ]);
    for size in [None, Some([4, 5])] {
        let spec = SourceSpec { size, ..SourceSpec::file(dir.path()) };
        conforms(|| Dataset::open(&spec, Path::new(".")).unwrap());
    }
}

#[test]
fn vectors_are_samples() {
    let data = Dataset::from_f32(range(12), &[2, 2], &[0u32, 2, 1][..]).unwrap();
    assert_eq!((data.fixed_len().unwrap(), data.x_shape(), data.y_shape()), (3, &[2, 2][..], Some(&[][..])));
    assert_eq!((data.target(), data.x_dtype()), (Target::Classes, DType::F32));
    let batch = read_all(&data).unwrap();
    assert_eq!((batch.x, batch.y), (range(12), vec![0.0, 2.0, 1.0]));
    let values = Dataset::from_f32(range(6), &[2], range(9)).unwrap();
    assert_eq!((values.target(), values.y_shape()), (Target::Values, Some(&[3][..])));
    let single = Dataset::from_f32(range(6), &[2], range(3)).unwrap();
    assert_eq!((single.target(), single.y_shape()), (Target::Values, Some(&[][..])));
}

#[test]
fn vectors_that_are_no_samples_are_refused_with_the_reason() {
    let error = |x: usize, shape: &[usize], y: Labels| {
        Dataset::from_f32(range(x), shape, y).map(|data| format!("{data:?}")).unwrap_err().to_string()
    };
    let of = |classes: usize| Labels::Classes(vec![0; classes]);
    assert_eq!(error(7, &[2], of(3)), r#"7 numbers do not make whole samples of shape [2]: "x" of memory"#);
    assert_eq!(error(0, &[2], of(0)), r#"no samples in "x" of memory"#);
    assert_eq!(error(6, &[2], of(4)), r#"3 samples but 4 labels: "y" of memory"#);
    assert_eq!(error(6, &[2], range(4).into()), r#"3 samples but 4 labels: "y" of memory"#);
    assert_eq!(error(6, &[2], Labels::Values(Vec::new())), r#"3 samples but 0 labels: "y" of memory"#);
    assert!(error(6, &[2, 0], of(3)).contains("shape [2, 0] has no elements"));
    let said = error(2, &[1], Labels::Classes(vec![0, 1 << 24 | 1]));
    assert!(said.contains("16777217 in row 1"), "{said}");
}

/// Numbers that arrive one after the other, labelled by whether they are odd; closed at some time.
#[derive(Debug, Default)]
struct Stream(Mutex<(usize, bool)>);

impl Stream {
    fn of(len: usize) -> Self {
        Self(Mutex::new((len, false)))
    }

    fn push(&self, count: usize) {
        self.0.lock().unwrap().0 += count;
    }

    fn close(&self) {
        self.0.lock().unwrap().1 = true;
    }
}

impl Source for Stream {
    fn schema(&self) -> Schema {
        let names = ["even", "odd"].map(str::to_owned);
        Schema::new([2], Origin::named("stream")).with_labels(LabelSchema::named_classes(names))
    }

    fn extent(&self) -> Extent {
        match *self.0.lock().unwrap() {
            (len, true) => Extent::Fixed(len),
            (now, false) => Extent::Growing { now },
        }
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
        let len = self.extent().available();
        if let Some(index) = indices.iter().copied().find(|index| *index >= len) {
            return Err(DataError::Index { index, len, origin: Origin::named("stream") });
        }
        for (index, x) in indices.iter().zip(rows.x.unwrap_or_default().chunks_exact_mut(2)) {
            x.copy_from_slice(&[*index as f32, -(*index as f32)]);
        }
        for (index, y) in indices.iter().zip(rows.y.unwrap_or_default()) {
            *y = (index % 2) as f32;
        }
        Ok(())
    }
}

#[test]
fn a_source_that_grows_conforms() {
    source_conformance(|| Box::new(Stream::default()));
    source_conformance(|| Box::new(Stream::of(1)));
    // A source that grows between any two calls.
    #[derive(Debug)]
    struct Restless(Stream);
    impl Source for Restless {
        fn schema(&self) -> Schema {
            self.0.schema()
        }
        fn extent(&self) -> Extent {
            self.0.push(3);
            self.0.extent()
        }
        fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError> {
            self.0.read(indices, rows, stop)
        }
    }
    source_conformance(|| Box::new(Restless(Stream::of(10))));
    source_conformance(|| {
        let stream = Stream::of(300);
        stream.close();
        Box::new(stream)
    });
}

#[test]
fn what_needs_a_length_waits_for_one() {
    let stream = Arc::new(Stream::of(5));
    let data = Dataset::from_source(stream.clone()).unwrap();
    let unknown = |error: DataError| {
        assert!(matches!(error, DataError::LengthUnknown { now: 5, .. }), "{error:?}");
        assert!(error.to_string().contains("does not know its length yet") && error.hint().is_some());
    };
    unknown(data.fixed_len().unwrap_err());
    unknown(Loader::new(data.clone(), &Transform::default(), LoaderOptions::default()).unwrap_err());
    unknown(data.check_labels(LabelCheck::Classes(2), 10).unwrap_err());
    // Available samples can be read all the same.
    let mut batch = Batch::new();
    data.read(&[4, 0], &mut batch).unwrap();
    assert_eq!((&batch.x[..], &batch.y[..]), (&[4.0, -4.0, 0.0, 0.0][..], &[0.0, 0.0][..]));
    stream.push(2);
    stream.close();
    assert_eq!(data.fixed_len().unwrap(), 7);
    let options = LoaderOptions { batch: 3, ..LoaderOptions::default() };
    let loaded: Vec<_> = Loader::new(data, &Transform::default(), options)
        .unwrap()
        .map(|loaded| loaded.unwrap().batch)
        .collect();
    assert_eq!(loaded.iter().map(|batch| batch.len).collect::<Vec<_>>(), [3, 3, 1]);
}

#[test]
fn a_loader_gives_the_same_batches_whatever_the_source_is() {
    let len = 53;
    let closed = Stream::of(len);
    closed.close();
    let x: Vec<f32> = (0..len).flat_map(|i| [i as f32, -(i as f32)]).collect();
    let y: Vec<usize> = (0..len).map(|i| i % 2).collect();
    let arrays = Tensor::from_f32(vec![len as u64, 2], &x).unwrap();
    let labels =
        Tensor::from_f32(vec![len as u64], &y.iter().map(|y| *y as f32).collect::<Vec<_>>()).unwrap();
    let load = |data: Dataset| {
        let transform = Transform { scale: Some(0.5), ..Transform::default() };
        let options = LoaderOptions {
            batch: 8,
            seed: 3,
            shuffle: true,
            passes: 2,
            train: true,
            ..LoaderOptions::default()
        };
        Loader::new(data, &transform, options).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let own = load(Dataset::new(closed).unwrap());
    assert_eq!(own.len(), 14);
    assert_eq!(own, load(Dataset::from_f32(x, &[2], y).unwrap()));
    assert_eq!(own, load(Dataset::from_arrays(arrays, Some(labels)).unwrap()));
}

#[test]
fn a_loader_checks_labels_as_they_come() {
    let mut classes = vec![1usize; 40];
    classes[29] = 5;
    let data = Dataset::from_f32(range(40), &[1], classes).unwrap();
    // No neighbouring label is checked first.
    data.check_labels(LabelCheck::Classes(5), 4).unwrap();
    let options = LoaderOptions { batch: 8, ..LoaderOptions::default() };
    let checked = data.with_label_check(LabelCheck::Classes(5));
    let mut loader = Loader::new(checked.clone(), &Transform::default(), options.clone()).unwrap();
    for _ in 0..3 {
        assert!(loader.next().unwrap().is_ok());
    }
    let error = loader.next().unwrap().unwrap_err();
    assert!(matches!(error, DataError::LabelOutOfRange { label: 5.0, row: 29, classes: 5, .. }), "{error:?}");
    assert!(loader.next().is_none());
    let unlabelled = checked.without_labels();
    assert_eq!(Loader::new(unlabelled, &Transform::default(), options).unwrap().count(), 5);
    let shares = Dataset::from_f32(range(3), &[1], vec![0.5, 1.0, 1.5]).unwrap();
    let error = read_all(&shares.with_label_check(LabelCheck::Shares)).unwrap_err();
    assert!(matches!(error, DataError::LabelNotShare { label: 1.5, row: 2, .. }), "{error:?}");
}

/// A flaw of a source that must fail the suite.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    None,
    LeavesOut,
    Panics,
    UntypedError,
    Shrinks,
    NoClass,
    Drifts,
    OtherWithoutLabels,
}

#[derive(Debug)]
struct Flawed(Flaw, Mutex<usize>);

impl Source for Flawed {
    fn schema(&self) -> Schema {
        let names = ["a", "b"].map(str::to_owned);
        Schema::new([1], Origin::default()).with_labels(LabelSchema::named_classes(names))
    }

    fn extent(&self) -> Extent {
        let mut calls = self.1.lock().unwrap();
        *calls += 1;
        Extent::Growing { now: if self.0 == Flaw::Shrinks && *calls > 1 { 9 } else { 10 } }
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError> {
        assert!(!stop.load(Ordering::Relaxed) || self.0 != Flaw::Panics, "stopped");
        if let Some(index) = indices.iter().copied().find(|index| *index >= 10) {
            return Err(match self.0 {
                Flaw::UntypedError => DataError::source("there is no such sample", Origin::default()),
                _ => DataError::Index { index, len: 10, origin: Origin::default() },
            });
        }
        let mut calls = self.1.lock().unwrap();
        *calls += 1;
        let labelled = rows.y.is_some();
        for (index, x) in indices.iter().zip(rows.x.unwrap_or_default()) {
            match self.0 {
                Flaw::LeavesOut if *index == 3 => {}
                Flaw::Drifts => *x = *calls as f32,
                Flaw::OtherWithoutLabels if !labelled => *x = 0.5,
                _ => *x = *index as f32,
            }
        }
        for (index, y) in indices.iter().zip(rows.y.unwrap_or_default()) {
            *y = if self.0 == Flaw::NoClass && *index == 7 { 2.0 } else { 1.0 };
        }
        Ok(())
    }
}

#[test]
fn the_suite_finds_sources_that_break_promises() {
    let passes = |flaw| {
        std::panic::catch_unwind(|| source_conformance(|| Box::new(Flawed(flaw, Mutex::new(0))))).is_ok()
    };
    assert!(passes(Flaw::None));
    for flaw in [
        Flaw::LeavesOut,
        Flaw::Panics,
        Flaw::UntypedError,
        Flaw::Shrinks,
        Flaw::NoClass,
        Flaw::Drifts,
        Flaw::OtherWithoutLabels,
    ] {
        assert!(!passes(flaw), "{flaw:?} is not found");
    }
}

#[test]
fn sources_that_no_batch_can_hold_are_refused() {
    #[derive(Debug)]
    struct Odd(Vec<usize>, Extent);
    impl Source for Odd {
        fn schema(&self) -> Schema {
            Schema::new(self.0.clone(), Origin::named("odd"))
        }
        fn extent(&self) -> Extent {
            self.1
        }
        fn read(&self, _: &[usize], _: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
            Ok(())
        }
    }
    let new = |shape: &[usize], extent| Dataset::new(Odd(shape.to_vec(), extent));
    assert!(matches!(new(&[3, 0], Extent::Fixed(1)), Err(DataError::SampleShape { .. })));
    assert!(matches!(new(&[3], Extent::Fixed(0)), Err(DataError::Empty { .. })));
    assert!(new(&[3], Extent::Growing { now: 0 }).is_ok());
}
