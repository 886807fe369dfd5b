//! Transformations of samples.

use crate::common::{range, read_all};
use phalanx_data::{Batch, Crop, DataError, Dataset, Sides, Transform, TransformError};
use phalanx_types::{DType, Tensor};

fn images() -> Dataset {
    let x = Tensor::new(DType::U8, vec![2, 2, 2, 2], (0..16).collect::<Vec<u8>>().into()).unwrap();
    let y = Tensor::new(DType::U8, vec![2], vec![2, 0].into()).unwrap();
    Dataset::from_arrays(x, Some(y)).unwrap()
}

fn apply(transform: &Transform, training: Option<(u64, u64)>) -> Batch {
    let dataset = images();
    let mut batch = read_all(&dataset).unwrap();
    transform.prepare(&dataset).unwrap().apply(&mut batch, training).unwrap();
    batch
}

fn refused(transform: &Transform) -> TransformError {
    match transform.prepare(&images()) {
        Err(DataError::Transform { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_happens_unless_it_is_said() {
    let batch = apply(&Transform::default(), Some((1, 2)));
    assert_eq!((batch.x, batch.y), (range(16), vec![2.0, 0.0]));
}

#[test]
fn scale_mean_and_std_by_channel() {
    let transform = Transform {
        scale: Some(0.5),
        mean: Some(vec![1.0, 2.0]),
        std: Some(vec![2.0, 4.0]),
        ..Transform::default()
    };
    let batch = apply(&transform, None);
    for (i, value) in batch.x.iter().enumerate() {
        let (mean, std) = if i / 4 % 2 == 0 { (1.0, 2.0) } else { (2.0, 4.0) };
        assert!((value - (i as f32 * 0.5 - mean) / std).abs() < 1e-6, "{i}");
    }
    let all = Transform { mean: Some(vec![1.0]), ..Transform::default() };
    assert_eq!(apply(&all, None).x, range(16).iter().map(|v| v - 1.0).collect::<Vec<_>>());
}

#[test]
fn labels_become_ones_and_zeros() {
    let transform = Transform { one_hot: Some(3), ..Transform::default() };
    assert_eq!(apply(&transform, None).y, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(transform.prepare(&images()).unwrap().y_shape(), Some(&[3][..]));
    let few = Transform { one_hot: Some(2), ..Transform::default() };
    let mut batch = Batch::new();
    images().read(&[1, 0], &mut batch).unwrap();
    let error = few.prepare(&images()).unwrap().apply(&mut batch, None).unwrap_err();
    assert!(matches!(error, DataError::LabelOutOfRange { row: 0, classes: 2, .. }), "{error:?}");
}

#[test]
fn augmentation_depends_on_the_sample_and_not_on_the_batch() {
    let transform = Transform { crop: Some(Crop { size: None, pad: 1 }), flip: true, ..Transform::default() };
    let dataset = images();
    let mut prepared = transform.prepare(&dataset).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for pass in 0..50 {
        let mut both = read_all(&dataset).unwrap();
        prepared.apply(&mut both, Some((7, pass))).unwrap();
        let mut alone = Batch::new();
        dataset.read(&[1], &mut alone).unwrap();
        prepared.apply(&mut alone, Some((7, pass))).unwrap();
        assert_eq!(alone.x, both.x[8..]);
        seen.insert(alone.x.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    }
    assert!(seen.len() > 10, "hardly anything is random");
    assert_eq!(apply(&transform, None).x, range(16), "evaluation is not random");
}

#[test]
fn shapes_after_a_transformation() {
    let crop = |size, pad| Transform { crop: Some(Crop { size, pad }), ..Transform::default() };
    for (transform, shape) in [
        (crop(Some(Sides::Square(1)), 0), vec![2, 1, 1]),
        (crop(Some(Sides::Sides([3, 4])), 1), vec![2, 3, 4]),
        (Transform { reshape: Some(vec![8]), ..Transform::default() }, vec![8]),
        (Transform { reshape: Some(vec![4, 2]), ..crop(Some(Sides::Square(2)), 0) }, vec![2, 2]),
    ] {
        let mut prepared = transform.prepare(&images()).unwrap();
        assert_eq!(prepared.x_shape(), shape);
        let mut batch = read_all(&images()).unwrap();
        prepared.apply(&mut batch, Some((1, 1))).unwrap();
        assert_eq!(batch.x.len(), 2 * shape.iter().product::<usize>());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let none = Transform::default;
    assert!(matches!(
        refused(&Transform { reshape: Some(vec![3]), ..none() }),
        TransformError::Reshape { .. }
    ));
    assert!(matches!(
        refused(&Transform { reshape: Some(vec![usize::MAX, 2]), ..none() }),
        TransformError::Reshape { .. }
    ));
    assert!(matches!(
        refused(&Transform { mean: Some(vec![0.0; 3]), ..none() }),
        TransformError::Channels { option: "mean", given: 3, channels: 2 }
    ));
    assert!(matches!(refused(&Transform { std: Some(vec![0.0]), ..none() }), TransformError::Value { .. }));
    assert!(matches!(refused(&Transform { scale: Some(f32::NAN), ..none() }), TransformError::Value { .. }));
    assert!(matches!(refused(&Transform { one_hot: Some(0), ..none() }), TransformError::Value { .. }));
    assert!(matches!(
        refused(&Transform { reshape: Some(vec![8]), flip: true, ..none() }),
        TransformError::NotAnImage { .. }
    ));
}

#[test]
fn transformations_read_as_they_are_written() {
    let text = r#"{"scale":0.5,"mean":0.1,"std":[1,2],"one_hot":10,"crop":{"pad":4},"flip":true}"#;
    let transform: Transform = serde_json::from_str(text).unwrap();
    assert_eq!((transform.mean.clone(), transform.std.clone()), (Some(vec![0.1]), Some(vec![1.0, 2.0])));
    assert_eq!(transform.crop, Some(Crop { size: None, pad: 4 }));
    let again: Transform = serde_json::from_str(&serde_json::to_string(&transform).unwrap()).unwrap();
    assert_eq!(again, transform);
    let crop: Crop = serde_json::from_str(r#"{"size":[3,4]}"#).unwrap();
    assert_eq!(crop.size, Some(Sides::Sides([3, 4])));
    assert!(serde_json::from_str::<Transform>(r#"{"scales":1}"#).is_err());
}
