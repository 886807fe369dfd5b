use phalanx_testkit::Host;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const JOBS: u64 = 200;

/// Stops the stream also when the attack panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One main node after the other has jobs solved while `attack` lasts; all are solved, at the first attempt.
#[expect(clippy::print_stdout, reason = "a measurement to read in the output of the test")]
pub(crate) fn undisturbed(host: Host<'_>, domain: &[&str], attack: impl FnOnce()) {
    let count = JOBS.to_string();
    let jobs =
        ["job", "submit", "--wait", "--output", "json", "--kind", "sleep", "--arg", "5ms", "--count", &count];
    let command: Vec<&str> = jobs.iter().chain(domain).copied().collect();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            loop {
                let summary = host.json(&command);
                let ends = ["solved", "failed", "reruns"].map(|end| summary[end].as_u64());
                assert_eq!(ends, [Some(JOBS), Some(0), Some(0)], "{summary}");
                rounds.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let stop = StopAtEnd(&stop);
        attack();
        drop(stop);
        stream.join().expect("every job is solved at the first try");
    });
    println!("{} jobs were solved meanwhile", rounds.into_inner() * JOBS);
}
