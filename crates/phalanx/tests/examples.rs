//! Every example runs to its end.

/// One test for each file of `examples/`.
macro_rules! examples {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            include!(concat!("../examples/", stringify!($name), ".rs"));

            #[test]
            fn runs() {
                main().unwrap();
            }
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

examples!(
    all_reduce,
    domain,
    embedded_node,
    fuse,
    in_memory,
    inference,
    jobs,
    own_loss,
    own_observer,
    own_source,
    plan_formation,
    run_directory,
    search,
    tensor_store,
    three_nodes,
);

#[test]
fn no_example_is_left_out() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, NAMES);
}

#[test]
fn a_model_on_three_nodes_takes_at_most_thirty_lines() {
    let lines = include_str!("../examples/three_nodes.rs").lines().count();
    assert!(lines <= 30, "{lines}");
}
