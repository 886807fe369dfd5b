use super::{counts, sandbox, submit};
use phalanx_testkit::Process;

#[test]
fn a_job_that_takes_its_nodes_down_is_set_aside_and_others_are_solved() {
    const ATTEMPTS: usize = 2;
    let sandbox = sandbox();
    let mut nodes: Vec<(Process, String)> =
        (0..4).map(|_| sandbox.node(&["--cores", "1", "--allow-exec"])).collect();
    let mut watch = sandbox.watch(&[]);
    let mut others = submit(&sandbox, &["--kind", "sleep", "--arg", "5ms", "--count", "600"]);
    watch.until(|nodes| nodes.values().any(|n| n["jobs_done"].as_u64() > Some(0)).then_some(()));

    let attempts = ATTEMPTS.to_string();
    let args = ["--kind", "exec", "--arg", "kill -9 $PPID", "--attempts", &attempts];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, counts(&summary)), (Some(1), [1, 0, 1, 0, 0]), "{summary}");

    let why = summary["first_failure"].as_str().unwrap();
    assert!(why.contains("set aside after 2 attempts; nodes lost while running it: "), "{why}");
    let (mut named, mut dead) = (0, 0);
    for (process, id) in &mut nodes {
        // A link ends before the process that was killed is gone.
        if why.contains(id.as_str()) {
            process.finish();
            named += 1;
        }
        dead += usize::from(!process.is_running());
    }
    // The first loss may come before the main node knows that the job runs; from then on it is watched.
    assert!(named == ATTEMPTS && (ATTEMPTS..=ATTEMPTS + 1).contains(&dead), "{dead} are dead: {why}");

    let (code, summary) = others.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [600, 600, 0, 0, 0]), "{summary}");
}
