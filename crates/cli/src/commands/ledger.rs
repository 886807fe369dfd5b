//! `phalanx ledger`: the index of runs, and how other commands use it.

use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::paths;
use clap::{Args, Subcommand};
use phalanx_ledger::{
    CaughtUp, CaughtUpJournals, CaughtUpSearches, Feeder, FeederHandle, Ledger, LedgerError, LedgerInfo,
    LedgerUrl, Migrated, Pruned, SCHEMA, searches_beside, set_aside,
};
use phalanx_records::with_causes;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    after_help = "The ledger is an index of runs: ledger.sqlite in their directory, or what PHALANX_LEDGER names:
postgres://USER@HOST/DATABASE for hosts that share one, sqlite:FILE, or none. The files of the runs, those of the
searches in searches/ beside them, and the journals of main nodes, stay the truth.

Examples:
  phalanx ledger info
  phalanx ledger rebuild results/runs
  PHALANX_LEDGER=postgres://ada@db/runs phalanx ledger info"
)]
pub(crate) struct LedgerCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say where the ledger is and what is in it.
    #[command(after_help = "Example: phalanx ledger info --output json")]
    Info(Where),
    /// Make the ledger anew from the directories of runs and searches, and from journals of jobs.
    #[command(after_help = "Example: phalanx ledger rebuild results/runs")]
    Rebuild(Where),
    /// Bring the ledger to the newest schema, with a copy first.
    ///
    /// Every command does so when it is needed.
    #[command(after_help = "Example: phalanx ledger migrate")]
    Migrate(Where),
    /// Forget runs and searches that are gone, remove old copies, give space back.
    #[command(after_help = "Example: phalanx ledger prune")]
    Prune(Where),
}

#[derive(Debug, Args)]
struct Where {
    /// The directory with the runs; runs/ when not given.
    #[arg(value_name = "DIR")]
    runs: Option<PathBuf>,
}

impl Where {
    fn runs(&self) -> &Path {
        self.runs.as_deref().unwrap_or(Path::new(RUNS))
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Info(LedgerInfo);

impl Render for Info {
    fn table(&self) -> String {
        let info = &self.0;
        summary([
            ("ledger", info.place.clone()),
            ("database", info.database.clone()),
            ("schema", info.schema.to_string()),
            ("runs", format!("{}, {} of them running", info.runs, info.running)),
            ("metric points", format!("{} in {} series", info.points, info.series)),
            ("events", info.events.to_string()),
            ("jobs", info.jobs.to_string()),
            ("searches", format!("{}, with {} trials", info.searches, info.trials)),
            ("size", ByteSize(info.size).to_string()),
        ])
    }

    fn quiet(&self) -> String {
        self.0.place.clone()
    }
}

#[derive(Debug, Serialize)]
struct Rebuilt {
    #[serde(flatten)]
    caught_up: CaughtUp,
    /// Of main nodes, with their jobs.
    journals: CaughtUpJournals,
    searches: CaughtUpSearches,
    /// Where a damaged ledger was moved to.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<PathBuf>,
}

impl Render for Rebuilt {
    fn table(&self) -> String {
        let CaughtUp { runs, entries, removed, failed, .. } = &self.caught_up;
        let mut lines = vec![format!("{runs} runs, {entries} records")];
        if *removed > 0 {
            lines.push(format!("{removed} runs forgotten, whose directories are gone"));
        }
        let journals = &self.journals;
        if journals.journals > 0 {
            lines.push(format!("{} journals of jobs, {} records", journals.journals, journals.entries));
        }
        let searches = &self.searches;
        if searches.searches > 0 {
            lines.push(format!("{} searches, {} records", searches.searches, searches.entries));
        }
        lines.extend(self.damaged.iter().map(|path| format!("the damaged ledger is now {}", path.display())));
        lines.extend(
            failed
                .iter()
                .chain(&journals.failed)
                .chain(&searches.failed)
                .map(|(path, why)| format!("left out {}: {why}", path.display())),
        );
        lines.join("\n")
    }

    fn quiet(&self) -> String {
        String::new()
    }
}

#[derive(Debug, Serialize)]
struct MigratedTo {
    schema: u32,
    migrated: Option<Migrated>,
}

impl Render for MigratedTo {
    fn table(&self) -> String {
        match &self.migrated {
            None => format!("the ledger has the newest schema, {}", self.schema),
            Some(Migrated { from: 0, to, .. }) => format!("made a ledger with schema {to}"),
            Some(Migrated { from, to, copy }) => {
                let copy = copy.as_deref().unwrap_or("nowhere");
                format!("from schema {from} to {to}; the copy from before is {copy}")
            }
        }
    }

    fn quiet(&self) -> String {
        self.schema.to_string()
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Cleaned(Pruned);

impl Render for Cleaned {
    fn table(&self) -> String {
        let Pruned { runs, journals, searches, copies, freed } = self.0;
        let freed = ByteSize(freed);
        format!(
            "{runs} runs forgotten, {journals} journals forgotten, {searches} searches forgotten, \
             {copies} copies removed, {freed} freed"
        )
    }

    fn quiet(&self) -> String {
        String::new()
    }
}

pub(crate) fn run(command: &LedgerCommand, output: Output) -> Result<(), Failure> {
    let open = |runs: &Path| Ledger::for_runs(runs).map_err(ledger_failure);
    match &command.verb {
        Verb::Info(args) => {
            let ledger = open(args.runs())?;
            ledger.catch_up(args.runs()).map_err(ledger_failure)?;
            for (domain, dir) in paths::journals_by_domain() {
                ledger.catch_up_journals(&domain, &dir).map_err(ledger_failure)?;
            }
            ledger.catch_up_searches(&searches_beside(args.runs())).map_err(ledger_failure)?;
            output.print(&Info(ledger.info().map_err(ledger_failure)?))
        }
        Verb::Rebuild(args) => rebuild(args.runs(), output),
        Verb::Migrate(args) => {
            let ledger = open(args.runs())?;
            output.print(&MigratedTo { schema: SCHEMA, migrated: ledger.migrated().cloned() })
        }
        Verb::Prune(args) => {
            let pruned = open(args.runs())?.prune().map_err(ledger_failure)?;
            output.print(&Cleaned(pruned))
        }
    }
}

fn rebuild(runs: &Path, output: Output) -> Result<(), Failure> {
    let mut damaged = None;
    let ledger = match Ledger::for_runs(runs) {
        Err(error) if error.is_damage() => {
            let url = LedgerUrl::for_runs(runs).map_err(ledger_failure)?;
            let Some(LedgerUrl::Sqlite(path)) = url else { return Err(ledger_failure(error)) };
            damaged = Some(set_aside(&path).map_err(ledger_failure)?);
            Ledger::for_runs(runs)
        }
        other => other,
    };
    let ledger = ledger.map_err(ledger_failure)?;
    let caught_up = ledger.rebuild(runs).map_err(ledger_failure)?;
    let journals = ledger.rebuild_journals(&paths::journals_by_domain()).map_err(ledger_failure)?;
    let searches = ledger.rebuild_searches(&searches_beside(runs)).map_err(ledger_failure)?;
    output.print(&Rebuilt { caught_up, journals, searches, damaged })
}

/// Where the ledger for jobs is: what PHALANX_LEDGER names, or that of the usual directory of runs if there is one.
fn ledger_of_jobs() -> Option<LedgerUrl> {
    let url = LedgerUrl::for_runs(Path::new(RUNS)).unwrap_or_else(|error| {
        tracing::warn!("{}", with_causes(&error));
        None
    })?;
    let leaves_nothing = matches!(url, LedgerUrl::Sqlite(_)) && !Path::new(RUNS).is_dir();
    (!leaves_nothing).then_some(url)
}

/// A ledger with all jobs of the journals of a domain; `None` if there is none, with a warning if it cannot be used.
pub(crate) fn jobs_ledger(domain: &str, journals: &Path) -> Option<Ledger> {
    let url = ledger_of_jobs()?;
    let opened =
        Ledger::open(&url).and_then(|ledger| Ok((ledger.catch_up_journals(domain, journals)?, ledger)));
    match opened {
        Ok((caught_up, ledger)) => {
            for (journal, why) in caught_up.failed {
                tracing::warn!("{} is left out: {why}", journal.display());
            }
            Some(ledger)
        }
        Err(error) => {
            tracing::warn!("{}; the journals are read instead", with_causes(&error));
            None
        }
    }
}

/// The ledger of a directory of searches, with everything that these have recorded; `None` if there is none, with a
/// warning if it cannot be used.
pub(crate) fn ledger_of_searches(searches: &Path) -> Option<Ledger> {
    let url = LedgerUrl::for_searches(searches).unwrap_or_else(|error| {
        tracing::warn!("{}", with_causes(&error));
        None
    })?;
    // Looking at no searches leaves nothing behind.
    if let LedgerUrl::Sqlite(file) = &url
        && !file.is_file()
    {
        return None;
    }
    let opened = Ledger::open(&url).and_then(|ledger| Ok((ledger.catch_up_searches(searches)?, ledger)));
    match opened {
        Ok((caught_up, ledger)) => {
            for (search, why) in caught_up.failed {
                tracing::warn!("{} is left out of the ledger: {why}", search.display());
            }
            Some(ledger)
        }
        Err(error) => {
            tracing::warn!("{}; the files of the searches here are read", with_causes(&error));
            None
        }
    }
}

/// Feeds the journal of a main node of this process into the ledger for jobs, if there is one.
pub(crate) fn feed_journal(domain: &str, journal: &Path) -> Option<FeederHandle> {
    let url = ledger_of_jobs()?;
    Some(Feeder::start_journal(url, domain.to_owned(), journal.to_owned()))
}

/// An error of the ledger with its exit code and what to do about it.
pub(crate) fn ledger_failure(error: LedgerError) -> Failure {
    let hint = error.hint();
    let failure = if error.is_usage() { Failure::usage(error) } else { Failure::infrastructure(error) };
    failure.hint_if(hint)
}

/// The ledger of a directory of runs, with everything that its runs have recorded; `None`, with a warning, if it cannot
/// be used, and without one if it is switched off or there are no runs.
pub(crate) fn ledger_of(runs: &Path) -> Result<Option<Ledger>, Failure> {
    let url = match LedgerUrl::for_runs(runs).map_err(ledger_failure)? {
        Some(url) => url,
        None => return Ok(None),
    };
    // Looking at no runs leaves nothing behind.
    if matches!(url, LedgerUrl::Sqlite(_)) && !runs.is_dir() {
        return Ok(None);
    }
    let opened = Ledger::open(&url).and_then(|ledger| Ok((ledger.catch_up(runs)?, ledger)));
    match opened {
        Ok((caught_up, ledger)) => {
            for (run, why) in caught_up.failed {
                tracing::warn!("{} is left out: {why}", run.display());
            }
            Ok(Some(ledger))
        }
        Err(error) => {
            tracing::warn!("{}; the files of the runs are read instead", with_causes(&error));
            Ok(None)
        }
    }
}

/// A ledger of some runs that ends with the returned directory.
pub(crate) fn temporary_ledger(runs: &Path) -> Result<(Ledger, tempfile::TempDir), Failure> {
    let dir = tempfile::tempdir().map_err(Failure::infrastructure)?;
    let url = LedgerUrl::Sqlite(dir.path().join(phalanx_ledger::LEDGER_FILE));
    let ledger = Ledger::open(&url).map_err(ledger_failure)?;
    ledger.catch_up(runs).map_err(ledger_failure)?;
    Ok((ledger, dir))
}

/// The ledger that a run belongs to.
fn ledger_of_run(run: &Path) -> Option<LedgerUrl> {
    let found = LedgerUrl::for_run(run);
    found.unwrap_or_else(|error| {
        tracing::warn!("{}", with_causes(&error));
        None
    })
}

/// Brings what was just recorded about a run into the ledger; if it cannot be, the next look does.
pub(crate) fn bring_in(run: &Path) {
    let Some(url) = ledger_of_run(run) else { return };
    if let Err(error) = Ledger::open(&url).and_then(|ledger| ledger.feed(run)) {
        tracing::warn!("{}; the ledger learns of it later", with_causes(&error));
    }
}

/// Forgets a run whose directory was deleted; if that cannot be, the next look does.
pub(crate) fn forget(run: &Path, uid: Option<&str>) {
    let (Some(url), Some(uid)) = (ledger_of_run(run), uid) else { return };
    match Ledger::open(&url).and_then(|ledger| ledger.forget_run(uid)) {
        Ok(()) | Err(LedgerError::NoRun { .. }) => {}
        Err(error) => tracing::warn!("{}; the ledger learns of it later", with_causes(&error)),
    }
}
