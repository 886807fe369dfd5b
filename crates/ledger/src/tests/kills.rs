//! A process that feeds the ledger is killed at any moment.

use super::files::Truth;
use super::{Workplace, on_both};
use crate::shell::testing::connect;
use crate::{Ledger, LedgerUrl};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const URL: &str = "PHALANX_LEDGER_TEST_URL";
const RUN: &str = "PHALANX_LEDGER_TEST_RUN";

/// The process that is killed: this test, started again with a run to feed.
#[test]
fn feeding_process() {
    let (Ok(url), Ok(run)) = (std::env::var(URL), std::env::var(RUN)) else { return };
    let url = LedgerUrl::parse(&url).unwrap().unwrap();
    let ledger = Ledger::open(&url).unwrap();
    loop {
        ledger.feed(&PathBuf::from(&run)).unwrap();
    }
}

fn start(place: &Workplace, run: &std::path::Path) -> Child {
    let url = match &place.url {
        LedgerUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        LedgerUrl::Postgres(url) => url.clone(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::kills::feeding_process"]).env(URL, url).env(RUN, run);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_ledger_opens_and_agrees_after_kills_of_the_process_that_feeds() {
    on_both(|place| {
        let mut run = place.run("run");
        let ledger = place.ledger();
        let mut known = 0;
        for _ in 0..5 {
            let mut child = start(&place, &run.path);
            let until = Instant::now() + Duration::from_secs(30);
            // The child is killed after it has written something, in the middle of the next.
            while ledger.events(&run.uid, None, 1 << 40).map_or(0, |events| events.len()) <= known {
                run.steps(400);
                run.event("note", "written while it is fed".into());
                assert!(Instant::now() < until && child.try_wait().unwrap().is_none());
            }
            run.steps(2000);
            child.kill().unwrap();
            child.wait().unwrap();
            known = ledger.events(&run.uid, None, 1 << 40).unwrap().len();
        }
        drop(ledger);
        if let LedgerUrl::Sqlite(_) = place.url {
            let mut sqlite = connect(&place.url).unwrap();
            sqlite
                .query("pragma integrity_check", &[], &mut |row| assert_eq!(row.required_text(0), "ok"))
                .unwrap();
        }
        let ledger = place.ledger();
        ledger.feed(&run.path).unwrap();
        assert_eq!(Truth::of_ledger(&ledger, &run.uid), Truth::of_files(&run.path));
    });
}
