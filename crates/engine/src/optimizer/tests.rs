use super::*;
use serde_json::{Value, json};

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32).collect()
}

fn spec(value: Value) -> OptimizerSpec {
    serde_json::from_value(value).expect("a known optimizer")
}

/// PyTorch rounds in another order here and there; a momentum lets that grow.
fn close(got: &[f32], wanted: &[f32], what: &str) {
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() <= 1e-6 + 3e-6 * wanted.abs(), "{what}: {got}, not {wanted}");
    }
}

#[test]
fn fifty_steps_match_pytorch() {
    let cases: Value = serde_json::from_str(include_str!("../../tests/data/optimizers.json")).expect("valid");
    let t = Threads::new(1);
    for case in cases.as_array().expect("a list") {
        let spec = spec(case["optimizer"].clone());
        let (mut parameter, center) = (numbers(&case["start"]), numbers(&case["center"]));
        let mut optimizer = Optimizer::new(spec, &[parameter.len()]);
        let path = case["path"].as_array().expect("a list");
        for step in 0..50u64 {
            let shift = ((step % 3) as f32 - 1.0) * 0.25;
            let gradient: Vec<f32> =
                parameter.iter().zip(&center).map(|(p, c)| (p - c) * 0.5 + shift).collect();
            optimizer.begin_step();
            optimizer.update(&t, 0, spec.lr(), &mut parameter, &gradient);
            if let Some(point) = path.iter().find(|point| point["steps"] == json!(step + 1)) {
                close(&parameter, &numbers(&point["parameter"]), &format!("{spec:?} after {}", step + 1));
            }
        }
        let states = case["state"].as_object().expect("a table");
        assert_eq!(states.len(), optimizer.state_names().len(), "{spec:?}");
        for (name, wanted) in states {
            close(optimizer.state(0, name).expect("kept"), &numbers(wanted), &format!("{spec:?} {name}"));
        }
    }
}

fn every_rule() -> Vec<OptimizerSpec> {
    let cases: Value = serde_json::from_str(include_str!("../../tests/data/optimizers.json")).expect("valid");
    cases.as_array().expect("a list").iter().map(|case| spec(case["optimizer"].clone())).collect()
}

fn wave(n: usize, stride: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * stride) % 1013) as f32 / 500.0 - 1.0).collect()
}

#[test]
fn the_team_does_not_change_a_bit() {
    let n = 3 * BLOCK + 21;
    for spec in every_rule() {
        let results = [1, 2, 3].map(|count| {
            let t = Threads::new(count);
            let mut optimizer = Optimizer::new(spec, &[n]);
            let mut parameter = wave(n, 7919);
            for step in 0..3 {
                optimizer.begin_step();
                optimizer.update(&t, 0, 0.01, &mut parameter, &wave(n, 31 + step));
            }
            parameter.iter().map(|p| p.to_bits()).collect::<Vec<_>>()
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{spec:?}");
    }
}

#[test]
fn a_restored_optimizer_goes_on_as_the_first_would_have() {
    let t = Threads::new(1);
    for spec in every_rule() {
        let (mut first, mut parameter) = (Optimizer::new(spec, &[40]), wave(40, 17));
        for step in 0..4 {
            first.begin_step();
            first.update(&t, 0, 0.1, &mut parameter, &wave(40, 5 + step));
        }
        let mut second = Optimizer::new(spec, &[40]);
        second.set_steps(first.steps());
        for name in first.state_names() {
            second.restore(first.steps(), 0, name, first.state(0, name).expect("kept")).expect("fits");
        }
        let mut copy = parameter.clone();
        for (optimizer, parameter) in [(&mut first, &mut parameter), (&mut second, &mut copy)] {
            optimizer.begin_step();
            optimizer.update(&t, 0, 0.1, parameter, &wave(40, 11));
        }
        assert_eq!(parameter, copy, "{spec:?}");
    }
}

#[test]
fn state_that_is_not_kept_cannot_be_restored() {
    let mut optimizer = Optimizer::new(OptimizerSpec::Adam(Adam::default()), &[3]);
    let unknown = optimizer.restore(1, 0, "momentum_buffer", &[0.0; 3]);
    assert!(matches!(unknown, Err(StateError::Unknown { .. })));
    let unknown = optimizer.restore(1, 1, "exp_avg", &[0.0; 3]);
    assert!(matches!(unknown, Err(StateError::Unknown { index: 1, .. })));
    let size = optimizer.restore(1, 0, "exp_avg", &[0.0; 4]);
    assert!(matches!(size, Err(StateError::Size { got: 4, wanted: 3, .. })));
    assert_eq!((optimizer.steps(), Optimizer::bytes_per_parameter(optimizer.spec())), (0, 8));
}

#[test]
fn an_optimizer_is_written_as_a_word_or_a_table() {
    assert_eq!(spec(json!("adamw")), OptimizerSpec::AdamW(AdamW::default()));
    let momentum = spec(json!({ "name": "sgd", "lr": 0.5, "momentum": 0.9 }));
    assert_eq!(momentum, OptimizerSpec::Sgd(Sgd { lr: 0.5, momentum: 0.9, ..Sgd::default() }));
    assert!(serde_json::from_value::<OptimizerSpec>(json!({ "name": "sgd", "betas": [0.9, 0.9] })).is_err());
    assert!(serde_json::from_value::<OptimizerSpec>(json!("sdg")).is_err());
    for spec in every_rule() {
        let read: OptimizerSpec =
            serde_json::from_str(&serde_json::to_string(&spec).expect("plain")).expect("known");
        assert_eq!(read, spec);
    }
}
