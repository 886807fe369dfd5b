//! Curves, comparisons and tables of runs.

use super::{MLP, losses, run_file, sandbox, train};
use phalanx_testkit::Sandbox;

/// Two runs that differ in two settings.
fn two_runs() -> Sandbox {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 2\noptimizer = { name = \"sgd\", lr = 0.1 }");
    train(&sandbox, &["--run-dir", "runs/first"]);
    run_file(&sandbox, MLP, "epochs = 1\noptimizer = { name = \"sgd\", lr = 0.05 }");
    train(&sandbox, &["--run-dir", "runs/second"]);
    sandbox
}

fn text(sandbox: &Sandbox, args: &[&str]) -> String {
    let done = sandbox.run(args);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{args:?}: {err}");
    out.into_owned()
}

#[test]
fn runs_are_drawn_compared_and_exported() {
    let sandbox = two_runs();
    let file = |name: &str| std::fs::read(sandbox.path().join(name)).unwrap();

    let picture = text(&sandbox, &["run", "plot", "first"]);
    assert!(picture.contains("val_acc") && picture.contains("step 34"), "{picture}");
    assert!(picture.chars().any(|dot| ('\u{2801}'..='\u{28ff}').contains(&dot)), "{picture}");
    assert!(
        !picture.contains('\u{1b}') && picture.lines().all(|line| line.chars().count() <= 80),
        "{picture}"
    );

    let plotted = sandbox.json(&["run", "plot", "first", "--metric", "loss", "--output", "json"]);
    let points = plotted["metrics"]["loss"]["first"].as_array().unwrap();
    let recorded = losses(&sandbox.path().join("runs/first"));
    assert_eq!(points.len(), recorded.len());
    assert_eq!(points[33], serde_json::json!([34.0, recorded[33].1]));

    text(&sandbox, &["run", "plot", "first", "second", "--log", "--smooth", "0.6", "--to", "both.svg"]);
    let svg = String::from_utf8(file("both.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("first") && svg.contains("second"), "{svg}");
    text(&sandbox, &["run", "plot", "second", "--x", "time", "--to", "second.png"]);
    assert_eq!(file("second.png")[..8], *b"\x89PNG\r\n\x1a\n");

    let compared = sandbox.json(&["run", "compare", "first", "second", "--to", "c.png", "--output", "json"]);
    let differ: Vec<&str> =
        compared["settings"].as_array().unwrap().iter().map(|of| of["key"].as_str().unwrap()).collect();
    assert_eq!(differ, ["train.epochs", "train.optimizer.lr"], "{compared}");
    assert_eq!(compared["settings"][0]["runs"][0]["value"], "2");
    assert!(compared["settings"][0]["runs"][0]["source"].as_str().unwrap().starts_with("from run.toml:"));
    let loss = compared["metrics"].as_array().unwrap().iter().find(|of| of["name"] == "loss").unwrap();
    assert_eq!(loss["last"][0], recorded[33].1);
    let table = text(&sandbox, &["run", "compare", "first", "second"]);
    assert!(table.contains("train.optimizer.lr") && table.contains("0.05 (from run.toml:"), "{table}");

    text(&sandbox, &["run", "export", "first", "second", "--to", "m.csv"]);
    let csv = String::from_utf8(file("m.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 34 + 17);
    assert!(
        csv.starts_with("run,step,pass,unix_ms,grad_norm,loss,lr,samples_per_s,val_acc,val_loss\n"),
        "{csv}"
    );
    text(&sandbox, &["run", "export", "first", "--to", "m.parquet"]);
    assert_eq!(file("m.parquet")[..4], *b"PAR1");
}

#[test]
fn wrong_questions_about_curves_are_refused_with_a_hint() {
    let sandbox = two_runs();
    let said = sandbox.fails(2, &["run", "plot", "first", "--metric", "losss"]);
    assert!(
        said.contains("no values of \"losss\"") && said.contains("there are grad_norm, loss, lr"),
        "{said}"
    );
    let said = sandbox.fails(2, &["run", "plot", "first", "--to", "first.jpg"]);
    assert!(said.contains(".svg or .png"), "{said}");
    let said = sandbox.fails(2, &["run", "export", "first", "--to", "first.xlsx"]);
    assert!(said.contains(".csv or .parquet"), "{said}");
    sandbox.fails(2, &["run", "plot", "first", "--smooth", "1"]);
    sandbox.fails(2, &["run", "compare", "first"]);
    sandbox.fails(3, &["run", "export", "first", "--to", "no/such/place.csv"]);
    let said = sandbox.fails(2, &["run", "plot", "third"]);
    assert!(said.contains("there is no run"), "{said}");
}

#[test]
fn a_run_trains_on_where_event_files_cannot_be_written() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "steps = 3");
    train(&sandbox, &["--run-dir", "run"]);
    // A file where the directory of event files should be.
    std::fs::remove_dir_all(sandbox.path().join("run/tensorboard")).unwrap();
    std::fs::write(sandbox.path().join("run/tensorboard"), "").unwrap();
    let done = sandbox.run(&["run", "resume", "run", "--steps", "9"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && said.matches("no more event files for TensorBoard").count() == 1,
        "{said}"
    );
    assert_eq!(losses(&sandbox.path().join("run")).len(), 9);
}
