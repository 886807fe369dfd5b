use super::*;
use crate::zoo::{self, ZooOptions};
use phalanx_types::Seed;

fn model() -> (Graph, Weights) {
    let graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    let weights = graph.initialise(Seed(1));
    (graph, weights)
}

#[test]
fn weights_come_back_as_they_were() {
    let (graph, weights) = model();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    save(&path, &weights).unwrap();
    assert_eq!(load(&path, &graph).unwrap(), weights);
    assert_eq!(weights["bn_1.num_batches_tracked"].dtype(), DType::I64);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn everything_wrong_is_listed_at_once() {
    let (graph, mut weights) = model();
    weights.remove("bn_1.weight");
    weights.insert("extra".into(), Tensor::from_f32(vec![1], &[0.0]).unwrap());
    weights.insert("dense_2.bias".into(), Tensor::from_f32(vec![2], &[0.0; 2]).unwrap());
    let bytes = vec![0; 16 * 8];
    weights.insert("conv2d_1.bias".into(), Tensor::new(DType::F64, vec![16], bytes.into()).unwrap());
    let WeightsError::Mismatch { mismatches, .. } = check(&graph, &weights).unwrap_err() else { panic!() };
    assert_eq!(
        mismatches,
        [
            Mismatch::DType { name: "conv2d_1.bias".into(), wanted: DType::F32, got: DType::F64 },
            Mismatch::Missing { name: "bn_1.weight".into() },
            Mismatch::Shape { name: "dense_2.bias".into(), wanted: vec![10], got: vec![2] },
            Mismatch::Unexpected { name: "extra".into() },
        ]
    );
}

#[test]
fn a_file_far_too_large_is_not_read() {
    let (graph, _) = model();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(load(&path, &graph), Err(WeightsError::TooLarge { .. })));
}
