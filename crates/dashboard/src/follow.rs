//! Follows run directories by inotify, on a thread of its own: the kernel says what was written, nothing is looked at
//! again and again.

use crate::hub::Hub;
use crate::run_dirs::RunDirs;
use crate::source::Runs;
use phalanx_search_results::about::ABOUT_FILE;
use phalanx_search_results::events::EVENTS_FILE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Writes within this time are one change.
const TOGETHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How many run directories are watched; the newest count.
const MOST_WATCHED: usize = 4096;

/// What is noticed in a run directory. A process that is killed closes its files, too, so its end is noticed.
const EVERYTHING: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);

/// Watches of directories.
#[derive(Debug)]
pub(crate) struct Follower {
    fd: OwnedFd,
    root: PathBuf,
    /// Whether the root is itself the run.
    one: bool,
    /// Where searches are, which need not exist yet.
    searches: Option<PathBuf>,
    watched: BTreeMap<i32, PathBuf>,
}

impl Follower {
    /// Begins to watch a directory of runs and the runs in it, or one run.
    pub(crate) fn new(runs: &RunDirs) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let root = runs.root().to_owned();
        let (one, searches) = (runs.one_run().is_some(), runs.searches());
        let mut follower = Self { fd, root: root.clone(), one, searches, watched: BTreeMap::new() };
        // The ledger may lie there, which is written all the time.
        let flags = if follower.one { EVERYTHING } else { WatchFlags::CREATE | WatchFlags::MOVED_TO };
        follower.watch(&root, flags)?;
        let modified = |dir: &PathBuf| dir.metadata().and_then(|about| about.modified()).ok();
        let mut dirs: Vec<(Option<SystemTime>, PathBuf)> =
            runs.dirs().into_iter().map(|dir| (modified(&dir), dir)).collect();
        dirs.sort();
        for (_, dir) in dirs.into_iter().rev().take(MOST_WATCHED) {
            follower.watch_if_there(&dir);
        }
        follower.watch_searches();
        Ok(follower)
    }

    /// Watches all searches, or what they will be made in. Gives those that there are.
    fn watch_searches(&mut self) -> Vec<PathBuf> {
        let Some(searches) = self.searches.clone() else { return Vec::new() };
        let made = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        if self.watch(&searches, made).is_err() {
            if let Some(error) = searches.parent().and_then(|parent| self.watch(parent, made).err()) {
                tracing::debug!(%error, "searches are not followed");
            }
            return Vec::new();
        }
        let entries = std::fs::read_dir(&searches).into_iter().flatten().flatten();
        let dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        dirs.iter().for_each(|dir| self.watch_if_there(dir));
        dirs
    }

    fn is_search(&self, dir: &Path) -> bool {
        self.searches.as_deref().is_some_and(|searches| dir.parent() == Some(searches))
    }

    fn watch(&mut self, dir: &Path, flags: WatchFlags) -> io::Result<()> {
        let id = inotify::add_watch(&self.fd, dir, flags | WatchFlags::ONLYDIR)?;
        self.watched.insert(id, dir.to_owned());
        Ok(())
    }

    fn watch_if_there(&mut self, dir: &Path) {
        if self.watched.len() > MOST_WATCHED {
            return;
        }
        if let Err(error) = self.watch(dir, EVERYTHING) {
            tracing::debug!(%error, dir = %dir.display(), "changes of a run are not followed");
        }
    }

    /// Tells the hub of changes until the returned end of a pipe is dropped.
    pub(crate) fn start(self, runs: Arc<Runs>, hub: Arc<Hub>) -> io::Result<PipeWriter> {
        let (ended, end) = io::pipe()?;
        let follow = move || {
            if let Err(error) = self.run(&ended, &runs, &hub) {
                tracing::warn!(%error, "changes of runs are not followed any more");
            }
        };
        std::thread::Builder::new().name("dashboard-follow".to_owned()).spawn(follow)?;
        Ok(end)
    }

    fn run(mut self, ended: &PipeReader, runs: &Runs, hub: &Hub) -> io::Result<()> {
        loop {
            let mut watched = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(ended, PollFlags::empty())];
            wait(&mut watched, None)?;
            if !watched[1].revents().is_empty() {
                return Ok(());
            }
            for dir in self.changed()? {
                if self.is_search(&dir) {
                    hub.search_changed(&dir);
                } else {
                    runs.changed(&dir);
                    hub.run_changed(&dir);
                }
            }
            wait(&mut [PollFd::new(ended, PollFlags::empty())], Some(&TOGETHER))?;
        }
    }

    /// The directories that changed.
    fn changed(&mut self) -> io::Result<BTreeSet<PathBuf>> {
        let (mut changed, mut made) = (BTreeSet::new(), Vec::new());
        let mut has_searches = false;
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // What was lost is not known: all may have changed.
                changed.extend(self.watched.values().cloned());
                continue;
            }
            let Some(dir) = self.watched.get(&event.wd()) else { continue };
            let name = event.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default();
            if *dir == self.root && !self.one {
                // Other files there do not belong to a run.
                made.extend(event.events().contains(ReadFlags::ISDIR).then(|| self.root.join(name)));
            } else if self.searches.as_ref() == Some(dir) {
                made.extend(event.events().contains(ReadFlags::ISDIR).then(|| dir.join(name)));
            } else if self.searches.as_ref().is_some_and(|searches| searches.parent() == Some(dir)) {
                has_searches |= self.searches.as_ref() == Some(&dir.join(name));
            } else if event.events().contains(ReadFlags::IGNORED) {
                changed.insert(dir.clone());
                self.watched.remove(&event.wd());
            } else if self.is_search(dir) {
                // Results are made from the events.
                let counts = name == EVENTS_FILE || name == ABOUT_FILE || name == "lock";
                changed.extend(counts.then(|| dir.clone()));
            } else if name != "lock" || event.events().contains(ReadFlags::CLOSE_WRITE) {
                changed.insert(dir.clone());
            }
        }
        if has_searches {
            changed.extend(self.watch_searches());
        }
        for dir in made {
            // Its first files may be there already.
            self.watch_if_there(&dir);
            changed.insert(dir);
        }
        Ok(changed)
    }
}

/// Waits for one of these, or for a time.
fn wait(fds: &mut [PollFd<'_>], at_most: Option<&Timespec>) -> io::Result<()> {
    loop {
        match poll(fds, at_most) {
            Err(Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}
