use super::*;

fn plan(search: &str) -> SearchPlan {
    let text = ready("cnn").unwrap().replace("trials = 50", search);
    let told = Overrides::default();
    SearchPlan::of_text(Path::new("cnn.toml"), text, PathBuf::from("/"), "s", &told, None).unwrap()
}

#[test]
fn a_trial_asks_for_the_memory_of_its_training() {
    let known = BTreeMap::from([("training_memory".to_owned(), 1e9)]);
    assert_eq!(plan("").memory(&known), ByteSize((64 << 20) + 1_000_000_000));
    assert_eq!(plan("memory = \"2GiB\"").memory(&known), ByteSize(2 << 30));
    let described = plan("").survey(1).pop().unwrap();
    assert!(plan("").memory(&described.known) > BASE_MEMORY, "{described:?}");
}

#[test]
fn retries_and_deadline_reach_the_jobs() {
    assert_eq!((plan("").attempts(), plan("").deadline()), (4, None));
    let told = plan("retries = 0\ndeadline = \"90s\"");
    assert_eq!((told.attempts(), told.deadline()), (1, Some(Duration::from_secs(90))));
}

#[test]
fn algorithms_of_rungs_need_rungs() {
    let text = ready("cnn").unwrap().replace("rungs =", "# rungs =");
    for algorithm in ["asha", "successive_halving", "random"] {
        let told = Overrides { algorithm: Some(algorithm.to_owned()), ..Overrides::default() };
        let made =
            SearchPlan::of_text(Path::new("s.toml"), text.clone(), PathBuf::from("/"), "s", &told, None);
        assert_eq!(matches!(made, Err(SearchError::NoRungs { .. })), algorithm != "random", "{made:?}");
    }
}
