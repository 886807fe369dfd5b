//! Databases of older and newer schemas.

use super::files::Truth;
use super::on_both;
use crate::shell::testing::{connect, make_old};
use crate::{Ledger, LedgerError, LedgerUrl, SCHEMA};

#[test]
fn an_old_ledger_is_copied_and_becomes_new_with_everything_in_it() {
    on_both(|place| {
        let mut run = place.run("run");
        run.steps(3);
        run.event("formed", serde_json::json!({ "epoch": 1, "nodes": ["a"], "step": 0 }));
        // A ledger of the first schema that knows a run, but no nodes.
        let mut old = connect(&place.url).unwrap();
        make_old(old.as_mut(), 1);
        let row = "insert into run (uid, kind, name, state, model, host, root, dir, steps, wall_s) \
                   values ($1, 'training', 'run', 'finished', 'm', 'old-host', $2, 'run', 3, 1)";
        let root = match &place.url {
            LedgerUrl::Sqlite(_) => String::new(),
            LedgerUrl::Postgres(_) => place.runs.canonicalize().unwrap().to_str().unwrap().to_owned(),
        };
        old.execute(row, &[run.uid.as_str().into(), root.into()]).unwrap();
        let position = "insert into position (run, events, metrics, annotations, state_file, run_file, stale) \
                        select id, 10, 10, 0, '', '', 0 from run";
        old.execute(position, &[]).unwrap();
        drop(old);

        let ledger = place.ledger();
        let migrated = ledger.migrated().unwrap().clone();
        assert_eq!((migrated.from, migrated.to), (1, SCHEMA));
        let copy = migrated.copy.unwrap();
        if let LedgerUrl::Sqlite(_) = place.url {
            let mut copy = connect(&LedgerUrl::Sqlite(copy.into())).unwrap();
            let mut names = Vec::new();
            copy.query("select name from run", &[], &mut |row| names.push(row.required_text(0))).unwrap();
            assert_eq!(names, ["run"]);
            copy.query("pragma user_version", &[], &mut |row| assert_eq!(row.count(0), 1)).unwrap();
        } else {
            let mut server = connect(&place.url).unwrap();
            let mut count = 0;
            server.query(&format!("select name from {copy}.run"), &[], &mut |_row| count += 1).unwrap();
            assert_eq!(count, 1);
        }
        assert_eq!(place.ledger().migrated(), None, "once");
        ledger.catch_up(&place.runs).unwrap();
        assert_eq!(Truth::of_ledger(&ledger, &run.uid), Truth::of_files(&run.path));
        assert_eq!(ledger.nodes(&run.uid).unwrap()[0].name, "a");
        assert_eq!(ledger.prune().unwrap().copies, 1);
    });
}

#[test]
fn a_newer_ledger_is_refused_and_left_alone() {
    on_both(|place| {
        drop(place.ledger());
        let mut newer = connect(&place.url).unwrap();
        newer.execute("insert into schema (version, unix_ms, program) values (99, 0, 'newer')", &[]).unwrap();
        if let LedgerUrl::Sqlite(_) = place.url {
            newer.script("pragma user_version = 99").unwrap();
        }
        drop(newer);
        let error = Ledger::open(&place.url).unwrap_err();
        assert!(matches!(error, LedgerError::Newer { found: 99, known: SCHEMA, .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("newer program"));
    });
}

#[test]
fn many_processes_may_open_a_new_ledger_at_once() {
    on_both(|place| {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..6).map(|_| scope.spawn(|| place.ledger().info().unwrap().schema)).collect();
            all.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), SCHEMA));
        });
    });
}

#[test]
fn a_damaged_file_is_said_to_be_so_and_can_be_set_aside() {
    let place = super::Workplace::sqlite();
    let LedgerUrl::Sqlite(path) = &place.url else { panic!("not a file") };
    std::fs::write(path, "this is no database, but it is long enough to look like one".repeat(100)).unwrap();
    let error = Ledger::open(&place.url).unwrap_err();
    assert!(error.hint().unwrap().contains("phalanx ledger rebuild"), "{error:?}");
    let aside = crate::set_aside(path).unwrap();
    assert!(aside.is_file() && !path.exists());
    assert_eq!(place.ledger().info().unwrap().runs, 0);
}
