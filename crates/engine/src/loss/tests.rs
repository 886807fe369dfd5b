use super::*;
use serde_json::{Value, json};

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32).collect()
}

fn sizes(value: &Value) -> Vec<usize> {
    numbers(value).iter().map(|v| *v as usize).collect()
}

#[test]
fn values_and_gradients_match_pytorch() {
    let cases: Value = serde_json::from_str(include_str!("../../tests/data/losses.json")).expect("valid");
    for case in cases.as_array().expect("a list") {
        let loss: Loss = serde_json::from_value(case["loss"].clone()).expect("a known loss");
        let (output, shape) = (numbers(&case["output"]), sizes(&case["shape"]));
        let (data, target_shape) = (numbers(&case["target"]), sizes(&case["target_shape"]));
        let target = Target { data: &data, shape: &target_shape };
        let mut gradient = vec![f32::NAN; output.len()];
        let t = Threads::new(2);
        let value = loss.evaluate(&t, &output, &shape, target, 0.5, Some(&mut gradient)).expect("fits");
        let alone = loss.evaluate(&t, &output, &shape, target, 0.5, None).expect("fits");
        let wanted = case["value"].as_f64().expect("a number");
        assert!((value - wanted).abs() <= 5e-7 * wanted.abs(), "{loss:?} {shape:?}: {value}, not {wanted}");
        assert_eq!(value.to_bits(), alone.to_bits(), "{loss:?} with and without gradient");
        for (got, wanted) in gradient.iter().zip(numbers(&case["gradient"])) {
            let wanted = 0.5 * wanted;
            assert!(
                (got - wanted).abs() <= 1e-7 + 1e-6 * wanted.abs(),
                "{loss:?} {shape:?}: {got}, not {wanted}"
            );
        }
    }
}

#[test]
fn the_team_does_not_change_a_bit() {
    let (rows, classes) = (700, 103);
    let output: Vec<f32> = (0..rows * classes).map(|i| ((i * 7919) % 1009) as f32 / 101.0 - 5.0).collect();
    let labels: Vec<f32> = (0..rows).map(|i| (i % classes) as f32).collect();
    let target = Target { data: &labels, shape: &[rows] };
    for loss in [Loss::CrossEntropy { smoothing: 0.1 }, Loss::Mse, Loss::BceWithLogits, Loss::Nll] {
        let results = [1, 2, 3].map(|n| {
            let mut gradient = vec![0.0; output.len()];
            let t = Threads::new(n);
            let value = loss.evaluate(&t, &output, &[rows, classes], target, 1.0, Some(&mut gradient));
            (value.expect("fits").to_bits(), gradient.iter().map(|g| g.to_bits()).collect::<Vec<_>>())
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{loss:?}");
    }
}

#[test]
fn a_label_that_is_no_class_is_named() {
    let t = Threads::new(1);
    let output = [0.0; 12];
    for bad in [3.0, -1.0, 1.5, f32::NAN] {
        let data = [0.0, 1.0, bad, 2.0];
        let target = Target { data: &data, shape: &[4] };
        let error = Loss::Mse.evaluate(&t, &output, &[4, 3], target, 1.0, None).expect_err("no class");
        assert!(matches!(error, LossError::Label { sample: 2, classes: 3, .. }), "{error}");
        let target = Target { data: &data, shape: &[2, 2] };
        let error = Loss::parse("cross_entropy")
            .expect("known")
            .evaluate(&t, &output, &[2, 3, 2], target, 1.0, None)
            .expect_err("no class");
        assert!(matches!(error, LossError::Label { sample: 1, .. }), "{error}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let t = Threads::new(1);
    let evaluate = |shape: &[usize], target: &[usize], loss: Loss| {
        let (output, data) = (vec![0.5; shape.iter().product()], vec![0.0; target.iter().product()]);
        loss.evaluate(&t, &output, shape, Target { data: &data, shape: target }, 1.0, None)
    };
    assert!(matches!(evaluate(&[4, 3], &[3, 4], Loss::Mse), Err(LossError::Shape { .. })));
    assert!(matches!(evaluate(&[4, 3], &[2], Loss::Nll), Err(LossError::Shape { .. })));
    assert!(matches!(evaluate(&[0, 3], &[0], Loss::Mse), Err(LossError::Empty)));
    let size = Loss::Mse.evaluate(&t, &[0.0], &[2], Target { data: &[0.0; 2], shape: &[2] }, 1.0, None);
    assert!(matches!(size, Err(LossError::Size { .. })));
    // A column of numbers against a list of them: the same numbers, not classes.
    assert_eq!(evaluate(&[4, 1], &[4], Loss::Mse), Ok(0.25));
    assert_eq!(evaluate(&[4], &[4, 1], Loss::L1), Ok(0.5));
    // A column of labels.
    assert!(evaluate(&[4, 3], &[4, 1], Loss::Nll).is_ok());
}

#[test]
fn confident_outputs_have_finite_losses() {
    let t = Threads::new(1);
    let value = |loss: Loss, output: &[f32], target: f32| {
        let target = Target { data: &[target], shape: &[1] };
        loss.evaluate(&t, output, &[1, output.len()], target, 1.0, None).expect("fits")
    };
    let cross_entropy = Loss::CrossEntropy { smoothing: 0.0 };
    assert_eq!(value(cross_entropy, &[1000.0, 0.0], 1.0), 1000.0);
    assert_eq!(value(cross_entropy, &[0.0, f32::NEG_INFINITY], 0.0), 0.0);
    assert!(value(cross_entropy, &[f32::NAN, 0.0], 1.0).is_nan());
    assert_eq!(value(Loss::BceWithLogits, &[-500.0], 1.0), 500.0);
    let tiny = value(Loss::BceWithLogits, &[-30.0], 0.0);
    assert!((tiny / (-30f64).exp() - 1.0).abs() < 1e-6, "{tiny}");
    assert_eq!(value(Loss::Bce, &[1.0], 0.0), 100.0);
}

#[test]
fn a_loss_is_written_as_a_word_or_a_table() {
    assert_eq!(Loss::parse("huber"), Some(Loss::Huber { delta: 1.0 }));
    assert_eq!(Loss::parse("hubris"), None);
    let read = |value: Value| serde_json::from_value::<Loss>(value);
    assert_eq!(read(json!("bce_with_logits")).expect("known"), Loss::BceWithLogits);
    assert_eq!(read(json!({ "name": "huber", "delta": 0.5 })).expect("known"), Loss::Huber { delta: 0.5 });
    assert!(read(json!({ "name": "huber", "dleta": 0.5 })).is_err());
    for loss in [Loss::Mse, Loss::CrossEntropy { smoothing: 0.5 }, Loss::Huber { delta: 2.0 }] {
        assert_eq!(read(serde_json::to_value(loss).expect("plain")).expect("known"), loss);
    }
}
