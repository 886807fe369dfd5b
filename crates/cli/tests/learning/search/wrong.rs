//! Search files and places that are wrong.

use super::{events, reached, search_file};
use crate::sandbox;
use phalanx_testkit::Sandbox;

/// Runs a search that cannot be; gives the exit code and what was said.
fn refused(sandbox: &Sandbox) -> (Option<i32>, String) {
    let output = sandbox.run(&["search", "run", "search.toml", "--local", "1", "--dir", "searches/first"]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The usual search file with a part of it replaced.
fn with(sandbox: &Sandbox, part: &str, by: &str) {
    search_file(sandbox, "trials = 6");
    let path = sandbox.path().join("search.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(part), "{part}");
    std::fs::write(path, text.replace(part, by)).unwrap();
}

#[test]
fn what_is_wrong_in_a_search_file_is_told_with_its_place_before_anything_is_made() {
    let sandbox = sandbox();
    for (part, by, wanted) in [
        ("trials = 6", "trails = 6", "trials"),
        ("\"$width\"", "\"$widht\"", "width"),
        ("from = \"valid.accuracy\"", "from = \"valid_accuracy\"", "valid.accuracy"),
        ("trials = 6", "trials = 0", "search.trials"),
    ] {
        with(&sandbox, part, by);
        let (code, said) = refused(&sandbox);
        assert_eq!(code, Some(2), "{by}: {said}");
        assert!(said.contains("search.toml") && said.contains(wanted), "{by}: {said}");
        assert!(!sandbox.path().join("searches/first").exists(), "{by}");
    }
    with(&sandbox, "digits.npz", "digits_that_are_not_there.npz");
    let (code, said) = refused(&sandbox);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("digits_that_are_not_there.npz") && said.contains("data.train"), "{said}");
}

#[test]
fn constraints_that_nothing_meets_end_the_search_with_the_reason() {
    let sandbox = sandbox();
    with(&sandbox, "[objective.params]", "[constraint]\nflops = { at_most = 10 }\n[objective.params]");
    let (code, said) = refused(&sandbox);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the search has failed") && said.contains("flops"), "{said}");
}

#[test]
fn a_latency_that_no_candidate_has_ends_the_search_with_the_reason() {
    let sandbox = sandbox();
    with(&sandbox, "[objective.params]", "[constraint]\nlatency = { at_most = 1e-6 }\n[objective.params]");
    let (code, said) = refused(&sandbox);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the search has failed") && said.contains("`latency` above 0.000001"), "{said}");
    let trials = sandbox.json(&["search", "status", "first", "--output", "json"]);
    let trials = trials.as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["status"] == "infeasible"), "{trials:?}");
    assert!(trials.iter().all(|trial| trial["why"].as_str().unwrap().contains("latency")), "{trials:?}");
    let reached = reached(&sandbox.path().join("searches/first"));
    assert!(reached.is_empty(), "nothing is trained: {reached:?}");
}

#[test]
fn a_latency_that_candidates_have_is_measured_of_each() {
    let sandbox = sandbox();
    let limits = "[constraint]\nlatency = { at_least = 1e-6, at_most = 60000 }\n[objective.params]";
    with(&sandbox, "[objective.params]", limits);
    let run = ["search", "run", "search.toml", "--local", "1", "--dir", "searches/first", "--output", "json"];
    let searched = sandbox.json(&run);
    assert_eq!(searched["end"]["state"], "finished", "{searched}");
    let events = events(&sandbox.path().join("searches/first"));
    let mut measured = 0;
    // Before anything is trained, because the constraint is judged then.
    for event in events.iter().filter(|event| event["event"] == "trial_proposed") {
        let latency = event["value"]["known"]["latency"].as_f64();
        assert!(latency.is_some_and(|ms| ms > 1e-6 && ms < 60_000.0), "{event}");
        measured += 1;
    }
    assert!(measured >= 6, "{measured}");
}

#[test]
fn a_space_that_cannot_be_built_ends_the_search_with_the_reason() {
    let sandbox = sandbox();
    with(&sandbox, "kernel = [1, 3]", "kernel = [99, 101]");
    with(&sandbox, "padding = \"same\"", "padding = 0, stride = 9, groups = 7");
    let (code, said) = refused(&sandbox);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the search has failed") && said.contains("layers do not make a model"), "{said}");
}

#[test]
fn a_training_that_diverges_fails_its_trial_and_says_why() {
    let sandbox = sandbox();
    with(&sandbox, "lr = [0.003, 0.03]", "lr = [1e36, 1e37]");
    let (code, said) = refused(&sandbox);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the search has failed"), "{said}");
}

#[test]
fn searches_that_are_there_or_not_are_told() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 2");
    let nothing = sandbox.run(&["search", "status"]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!(nothing.status.code(), Some(2), "{said}");
    assert!(said.contains("phalanx search run"), "{said}");
    let run = ["search", "run", "search.toml", "--local", "1", "--dir", "searches/first", "--output", "json"];
    sandbox.json(&run);
    let again = sandbox.run(&run);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(2), "{said}");
    assert!(said.contains("phalanx search resume searches/first"), "{said}");
    let unknown = sandbox.run(&["search", "show", "first", "--trial", "t99"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no trial t99"), "{said}");
    let filter = sandbox.run(&["search", "status", "first", "--where", "sate = running"]);
    let said = String::from_utf8_lossy(&filter.stderr).into_owned();
    assert_eq!(filter.status.code(), Some(2), "{said}");
    assert!(said.contains("state"), "{said}");
}

#[test]
fn a_ready_space_says_what_data_it_needs_and_can_be_written_to_be_changed() {
    let sandbox = sandbox();
    let output = sandbox.run(&["search", "run", "ready:cnn", "--local", "1", "--data", "nowhere"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for wanted in ["nowhere", "train-images-idx3-ubyte", "MNIST", "--data DIR", "cargo xtask data mnist"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // The files are found whether they are packed or not; empty ones are refused later, by name.
    let data = sandbox.path().join("mnist");
    std::fs::create_dir(&data).unwrap();
    for set in ["train", "t10k"] {
        std::fs::write(data.join(format!("{set}-images-idx3-ubyte")), b"").unwrap();
        std::fs::write(data.join(format!("{set}-labels-idx1-ubyte")), b"").unwrap();
    }
    let words = ["search", "run", "ready:cnn", "--local", "1", "--data", "mnist", "--dir", "searches/ready"];
    let output = sandbox.run(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains(".gz"), "{said}");

    let written = sandbox.run(&["search", "space", "ready:cnn", "--write", "own.toml"]);
    assert!(written.status.success(), "{written:?}");
    let space = sandbox.json(&["search", "space", "own.toml", "--output", "json"]);
    assert_eq!(space["candidates"], 192);
    let again = sandbox.run(&["search", "space", "ready:cnn", "--write", "own.toml"]);
    assert_eq!(again.status.code(), Some(2), "a file is not overwritten: {again:?}");
    let own = sandbox.run(&["search", "run", "own.toml", "--local", "1", "--data", "mnist"]);
    assert_eq!(own.status.code(), Some(2), "{own:?}");
}
