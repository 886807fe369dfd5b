//! A program that uses the library and starts node processes from this binary.

use phalanx::model::Builder;
use phalanx::{Dataset, Nodes, Training, train};

fn training() -> Training {
    let mut b = Builder::new("line");
    let x = b.input("x", &[1]);
    let y = b.linear("fc", x, 1);
    b.output(y);
    let x: Vec<f32> = (0..32).map(|i| i as f32 / 32.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 2.0 - x).collect();
    let data = Dataset::from_f32(x, &[1], y).unwrap();
    Training::new(b.finish().unwrap(), data).learning_rate(0.05).batch(8).epochs(60)
}

#[test]
fn node_processes_of_a_named_program_train() {
    let program = env!("CARGO_BIN_EXE_phalanx").into();
    let trained = train(training().nodes(Nodes::Processes { count: 2, program })).unwrap();
    let half = trained.predict(&[0.5]).unwrap().values()[0];
    assert!((half - 1.5).abs() < 0.1, "{half}");
}

#[test]
fn the_command_line_reads_what_a_program_trained() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let trained = train(training().run_dir(&run)).unwrap();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_phalanx"))
        .args(["fuse", "run", "-o", "model.safetensors", "--output", "json"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let fused: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(fused["params_hash"], trained.summary().params_hash.as_str());
    let resumed = std::process::Command::new(env!("CARGO_BIN_EXE_phalanx"))
        .args(["run", "resume", "run", "--epochs", "61", "--output", "json"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(summary["steps"], 4 * 61);
}
