//! Stopping and resuming runs of this host.

use crate::hub::Hub;
use crate::runs::lock;
use phalanx_records::run_dir::LockHolder;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// What a resumed run prints, in its directory.
const LOG: &str = "resume.log";
/// How much of its end is shown when it fails.
const SHOWN: u64 = 2000;

/// Starts a program that resumes runs: gives the command to which the directory of the run is added.
pub struct Resume(Box<dyn Fn() -> Command + Send + Sync>);

impl Resume {
    pub fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Self(Box::new(command))
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resume")
    }
}

/// Why a run cannot be stopped or resumed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is {state}")]
    State { state: String },
    #[error("it is finished; `phalanx run resume RUN --steps N` takes it further")]
    Finished,
    #[error("it is running")]
    Running,
    #[error("it is being resumed already")]
    Resuming,
    #[error(
        "no process of this host can be shown to hold it: it runs on another host, in a container, or as another user"
    )]
    NoHolder,
    #[error("this server itself writes it, for a program that logs with MLflow's client: end that program")]
    Ourselves,
    #[error("this server was started by a program that cannot resume runs")]
    NoProgram,
    #[error("the process that holds it cannot be signalled")]
    Signal(#[source] std::io::Error),
    #[error("the program cannot be started")]
    Start(#[source] std::io::Error),
}

/// How a run fares that was resumed from here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Resumed {
    Going,
    /// How it ended, and what it said last.
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Actions {
    resume: Option<Resume>,
    hub: Arc<Hub>,
    resumed: Mutex<BTreeMap<PathBuf, Resumed>>,
}

impl Actions {
    pub(crate) fn new(resume: Option<Resume>, hub: Arc<Hub>) -> Self {
        Self { resume, hub, resumed: Mutex::default() }
    }

    /// Whether runs can be resumed at all.
    pub(crate) fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// Why a run that was resumed from here ended, if it failed.
    pub(crate) fn failure(&self, run: &Path) -> Option<String> {
        match lock(&self.resumed).get(run) {
            Some(Resumed::Failed(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Has the process that holds a run end it, as Ctrl-C does; gives its number.
    pub(crate) fn stop(run: &Path, state: &str) -> Result<u32, Refusal> {
        if state != "running" {
            return Err(Refusal::State { state: state.to_owned() });
        }
        let holder = LockHolder::of(run).ok_or(Refusal::NoHolder)?;
        if holder.pid() == std::process::id() {
            return Err(Refusal::Ourselves);
        }
        holder.interrupt().map_err(Refusal::Signal)?;
        Ok(holder.pid())
    }

    /// Starts a process of its own that resumes a run; gives its number. It goes on when this one ends.
    pub(crate) fn resume(self: &Arc<Self>, run: &Path, state: &str) -> Result<u32, Refusal> {
        match state {
            "running" => return Err(Refusal::Running),
            "finished" => return Err(Refusal::Finished),
            _ => {}
        }
        let Resume(command) = self.resume.as_ref().ok_or(Refusal::NoProgram)?;
        let mut resumed = lock(&self.resumed);
        if resumed.get(run) == Some(&Resumed::Going) {
            return Err(Refusal::Resuming);
        }
        let mut options = File::options();
        // A directory from elsewhere may have a link of this name.
        options.create(true).append(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let log = options.open(run.join(LOG)).map_err(Refusal::Start)?;
        let begin = log.metadata().map_or(0, |file| file.len());
        let errors = log.try_clone().map_err(Refusal::Start)?;
        let mut command = command();
        // Ctrl-C in the terminal of this server is not for it.
        command.arg(run).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let mut child = command.spawn().map_err(Refusal::Start)?;
        let pid = child.id();
        resumed.insert(run.to_owned(), Resumed::Going);
        drop(resumed);
        let (actions, run) = (Arc::clone(self), run.to_owned());
        // It must not stay a zombie, and a failure must be told.
        std::thread::spawn(move || {
            let ended = child.wait();
            actions.ended(&run, ended.ok(), begin);
        });
        Ok(pid)
    }

    fn ended(&self, run: &Path, status: Option<ExitStatus>, begin: u64) {
        let failed = status.filter(|status| !status.success());
        let mut resumed = lock(&self.resumed);
        match failed {
            Some(status) => {
                let why = format!("resuming ended with {status}: {}", end_of_log(run, begin));
                resumed.insert(run.to_owned(), Resumed::Failed(why));
            }
            None => drop(resumed.remove(run)),
        }
        drop(resumed);
        self.hub.run_changed(run);
    }
}

/// What was said last in a log, from a place on.
fn end_of_log(run: &Path, begin: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut log = File::open(run.join(LOG))?;
        let from = log.metadata()?.len().saturating_sub(SHOWN).max(begin);
        log.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        log.take(SHOWN).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_records::run_dir::RunLock;

    fn actions(script: &'static str) -> Arc<Actions> {
        let command = move || {
            let mut command = Command::new("sh");
            command.args(["-c", script, "resume"]);
            command
        };
        Arc::new(Actions::new(Some(Resume::new(command)), Arc::new(Hub::new())))
    }

    #[test]
    fn what_cannot_be_done_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        assert!(matches!(Actions::stop(run, "finished"), Err(Refusal::State { .. })));
        assert!(matches!(Actions::stop(run, "running"), Err(Refusal::NoHolder)));
        let held = RunLock::take(run).unwrap();
        assert!(matches!(Actions::stop(run, "running"), Err(Refusal::Ourselves)));
        drop(held);
        let none = Arc::new(Actions::new(None, Arc::new(Hub::new())));
        assert!(matches!(none.resume(run, "failed"), Err(Refusal::NoProgram)));
        assert!(matches!(none.resume(run, "finished"), Err(Refusal::Finished)));
        assert!(matches!(none.resume(run, "running"), Err(Refusal::Running)));
        let missing = Resume::new(|| Command::new("/nowhere/at/all"));
        let missing = Arc::new(Actions::new(Some(missing), Arc::new(Hub::new())));
        assert!(matches!(missing.resume(run, "failed"), Err(Refusal::Start(_))));
        let (outside, linked) = (run.join("outside"), run.join("linked"));
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&outside, linked.join(LOG)).unwrap();
        assert!(matches!(missing.resume(&linked, "failed"), Err(Refusal::Start(_))));
        assert!(!outside.exists(), "nothing is written through a link");
    }

    #[tokio::test]
    async fn a_run_that_cannot_be_resumed_says_what_the_program_said() {
        let dir = tempfile::tempdir().unwrap();
        let actions = actions("read gate < \"$1/gate\"; echo \"no data in $1\" >&2; exit 3");
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("gate"), 0o600.into()).unwrap();
        let mut changes = actions.hub.subscribe();
        changes.mark_unchanged();
        actions.resume(dir.path(), "interrupted").unwrap();
        assert!(matches!(actions.resume(dir.path(), "interrupted"), Err(Refusal::Resuming)));
        assert_eq!(actions.failure(dir.path()), None);
        let gate = dir.path().join("gate");
        tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n").unwrap()).await.unwrap();
        changes.changed().await.unwrap();
        let why = actions.failure(dir.path()).unwrap();
        assert!(why.contains("exit status: 3") && why.contains("no data in"), "{why}");
        assert!(std::fs::read_to_string(dir.path().join(LOG)).unwrap().contains("no data"));
    }
}
