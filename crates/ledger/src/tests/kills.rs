//! A process that feeds the ledger is killed at any moment.

use super::files::Truth;
use super::server::MortalServer;
use super::{Workplace, on_both};
use crate::shell::testing::connect;
use crate::{Feeder, Ledger, LedgerUrl};
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

#[test]
fn a_server_that_is_killed_under_a_feeder_has_everything_once_in_the_end() {
    let server = MortalServer::start();
    let place = Workplace::new(|_runs| LedgerUrl::Postgres(server.new_database()));
    let mut run = place.run("run");
    let feeder = Feeder::start(place.url.clone(), run.path.clone(), |_warning| {});
    let ledger = place.ledger();
    // Fails while the server is not there, and once after that.
    let known = || ledger.event_count(&run_uid(&place)).unwrap_or(0);
    for round in 0..3 {
        let before = known();
        let until = Instant::now() + Duration::from_secs(60);
        // It is killed after the feeder has brought something, in the middle of the next.
        while known() <= before {
            run.steps(300);
            run.event("note", format!("round {round}").into());
            feeder.wake();
            assert!(Instant::now() < until, "nothing arrives");
        }
        run.steps(3000);
        run.event("note", "written just before".into());
        feeder.wake();
        server.kill();
        run.steps(300);
        run.event("note", "written while no server was there".into());
        if round == 1 {
            // What is in the ledger and was cut since must go.
            run.save();
            run.steps(50);
            run.cut();
            run.opened();
        }
        feeder.wake();
        server.start_again();
    }
    let until = Instant::now() + Duration::from_secs(60);
    while Truth::of_files(&run.path).events.len() as u64 != known() {
        feeder.wake();
        assert!(Instant::now() < until, "the feeder does not catch up");
        std::thread::yield_now();
    }
    assert!(feeder.finish_within(Duration::from_secs(30)));
    let ledger = place.ledger();
    assert_eq!(Truth::of_ledger(&ledger, &run.uid), Truth::of_files(&run.path));
    assert_eq!(ledger.feed(&run.path).unwrap().entries, 0, "the feeder brought all of it");
}

/// The one run of a place.
fn run_uid(place: &Workplace) -> String {
    phalanx_records::run_dir::run_uid(&place.runs.join("run")).unwrap()
}
