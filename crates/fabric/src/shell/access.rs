//! Access files: how the nodes of one user on one host find each other without a network.
//!
//! ```text
//! <runtime>/<domain>/token            32 random bytes, readable only by the same user
//! <runtime>/<domain>/<node id>.json   where that node listens
//! ```

use crate::error::StartError;
use crate::security::random;
use phalanx_types::{DomainName, Incarnation, NodeId};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;

/// The most bytes of an access file.
const MAX_FILE: u64 = 16 << 10;
const TOKEN_LEN: usize = 32;
/// A private domain in whose directory nothing changed for so long, and no process of which runs, is over.
const STALE_AFTER: Duration = Duration::from_secs(60);
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) id: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    pub(crate) incarnation: Incarnation,
}

/// The access files of one domain.
#[derive(Debug, Clone)]
pub(crate) struct AccessDir(PathBuf);

impl AccessDir {
    /// Creates the directory if necessary and checks that it belongs to this user.
    pub(crate) fn open(runtime: &Path, domain: &DomainName) -> Result<Self, StartError> {
        own_directory(runtime)?;
        let dir = runtime.join(domain.as_str());
        own_directory(&dir)?;
        if is_private(domain.as_str()) {
            sweep(runtime, domain);
        }
        Ok(Self(dir))
    }

    /// Removes a node's access file. The directory of a private domain goes with its last node.
    pub(crate) fn leave(&self, id: &NodeId) {
        self.remove(id);
        let name = self.0.file_name().and_then(|name| name.to_str());
        if name.is_some_and(is_private) && self.read_all().is_empty() {
            remove_domain(&self.0);
        }
    }

    /// Reads the token of a domain without a key; the first node creates it.
    pub(crate) fn token(&self) -> Result<Vec<u8>, StartError> {
        let path = self.0.join("token");
        let failed = |source| StartError::Directory { path: path.clone(), source };
        if !path.exists() {
            let bytes: [u8; TOKEN_LEN] = random().ok_or(StartError::Random)?;
            let (temporary, file) = self.write_temporary(&bytes).map_err(failed)?;
            // Ensures that a token is never found empty after a crash.
            file.sync_all().map_err(failed)?;
            // A hard link appears whole or not at all, and never replaces another node's token.
            let linked = fs::hard_link(&temporary, &path);
            fs::remove_file(&temporary).map_err(failed)?;
            match linked {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
        }
        let link = fs::symlink_metadata(&path).map_err(failed)?;
        let mut file = fs::File::open(&path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let me = rustix::process::geteuid().as_raw();
        let private = found.uid() == me && found.mode() & 0o077 == 0;
        if !link.is_file() || !found.is_file() || !private || found.len() != TOKEN_LEN as u64 {
            return Err(StartError::Token { path });
        }
        let mut token = vec![0; TOKEN_LEN];
        file.read_exact(&mut token).map_err(failed)?;
        Ok(token)
    }

    pub(crate) fn write(&self, access: &Access) -> Result<(), StartError> {
        let path = self.file(&access.id);
        let failed = |source| StartError::Directory { path: path.clone(), source };
        let text = serde_json::to_vec(access).map_err(|e| failed(e.into()))?;
        let (temporary, _) = self.write_temporary(&text).map_err(failed)?;
        fs::rename(&temporary, &path).map_err(failed)
    }

    pub(crate) fn remove(&self, id: &NodeId) {
        let path = self.file(id);
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!(%error, path = %path.display(), "could not remove the access file");
        }
    }

    /// The access files of all other nodes; files of dead processes are removed.
    pub(crate) async fn others(&self, me: &NodeId) -> Vec<Access> {
        let mut others = Vec::new();
        for access in self.read_all().into_iter().filter(|a| a.id != *me) {
            if is_running(access.pid) || answers(access.address).await {
                others.push(access);
            } else {
                tracing::debug!(node = %access.id, "its process is gone; removing its access file");
                self.remove(&access.id);
            }
        }
        others
    }

    fn read_all(&self) -> Vec<Access> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut all = Vec::new();
        for path in entries.filter_map(|e| Some(e.ok()?.path())) {
            if path.extension().is_some_and(|e| e == "json")
                && fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MAX_FILE)
                && let Ok(text) = fs::read(&path)
            {
                match serde_json::from_slice::<Access>(&text) {
                    Ok(access) if self.file(&access.id) == path => all.push(access),
                    _ => tracing::warn!(path = %path.display(), "not an access file"),
                }
            }
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    fn file(&self, id: &NodeId) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    fn write_temporary(&self, bytes: &[u8]) -> io::Result<(PathBuf, fs::File)> {
        let suffix = random::<8>().ok_or_else(|| io::Error::other("no random numbers"))?;
        let path = self.0.join(format!(".{}", crate::security::hex(&suffix)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        Ok((path, file))
    }
}

fn own_directory(path: &Path) -> Result<(), StartError> {
    let failed = |source| StartError::Directory { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // Checks both the link and its target: a link placed by another user would lead to that user's directory.
    let (link, target) = (fs::symlink_metadata(path).map_err(failed)?, fs::metadata(path).map_err(failed)?);
    let me = rustix::process::geteuid().as_raw();
    if link.uid() != me || target.uid() != me {
        return Err(StartError::ForeignDirectory { path: path.to_owned() });
    }
    if target.mode() & 0o022 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Whether a domain is one that a program makes for itself and its own nodes: `local-` and eight hexadecimal digits.
fn is_private(domain: &str) -> bool {
    let digits = domain.strip_prefix("local-");
    digits.is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Removes what private domains have left behind whose nodes were killed.
fn sweep(runtime: &Path, present: &DomainName) {
    let Ok(entries) = fs::read_dir(runtime) else { return };
    for entry in entries.filter_map(Result::ok) {
        let is_other =
            entry.file_name().to_str().is_some_and(|name| is_private(name) && name != present.as_str());
        if !is_other || !entry.metadata().is_ok_and(|found| found.is_dir() && is_old(&found)) {
            continue;
        }
        let domain = AccessDir(entry.path());
        if domain.read_all().iter().all(|access| !is_running(access.pid)) {
            remove_domain(&domain.0);
        }
    }
}

/// Whether nothing came or went in a directory for a while: its nodes may be about to start.
fn is_old(found: &fs::Metadata) -> bool {
    let changed = found.modified().ok().and_then(|at| at.elapsed().ok());
    changed.is_some_and(|since| since >= STALE_AFTER)
}

fn remove_domain(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir) {
        tracing::debug!(%error, path = %dir.display(), "could not remove what a private domain left");
    }
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

async fn answers(address: SocketAddr) -> bool {
    let connected = tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await;
    !matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_reads_the_token_the_first_one_made() {
        let runtime = tempfile::tempdir().unwrap();
        let open = || AccessDir::open(runtime.path(), &DomainName::new("lab").unwrap()).unwrap();
        let tokens: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open().token().unwrap())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(tokens[0].len(), 32);
        assert!(tokens.iter().all(|t| *t == tokens[0]));
        let mode = fs::metadata(runtime.path().join("lab/token")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_token_that_is_short_or_open_to_others_is_refused() {
        let runtime = tempfile::tempdir().unwrap();
        let dir = AccessDir::open(runtime.path(), &DomainName::new("lab").unwrap()).unwrap();
        dir.token().unwrap();
        let path = runtime.path().join("lab/token");
        let refused = || matches!(dir.token(), Err(StartError::Token { .. }));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        dir.token().unwrap();
        fs::write(&path, [1; 31]).unwrap();
        assert!(refused());
        let real = runtime.path().join("lab/real");
        fs::write(&real, [1; 32]).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        assert!(refused());
    }

    #[tokio::test]
    async fn files_of_dead_processes_are_removed_and_nonsense_is_ignored() {
        let runtime = tempfile::tempdir().unwrap();
        let dir = AccessDir::open(runtime.path(), &DomainName::new("lab").unwrap()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = |id: &str, pid| Access {
            id: NodeId::new(id).unwrap(),
            address: listener.local_addr().unwrap(),
            pid,
            incarnation: Incarnation(1),
        };
        let alive = access("a-0001", std::process::id());
        dir.write(&alive).unwrap();
        let reachable = access("b-0002", i32::MAX as u32);
        dir.write(&reachable).unwrap();
        fs::write(runtime.path().join("lab/c-0003.json"), "{").unwrap();
        fs::write(runtime.path().join("lab/d-0004.json"), serde_json::to_vec(&alive).unwrap()).unwrap();
        let me = NodeId::new("me-0000").unwrap();
        assert_eq!(dir.others(&me).await, [alive.clone(), reachable.clone()]);
        drop(listener);
        assert_eq!(dir.others(&me).await, [alive]);
        assert!(!runtime.path().join("lab/b-0002.json").exists());
    }

    #[test]
    fn nothing_is_left_of_a_private_domain_when_its_last_node_leaves() {
        let runtime = tempfile::tempdir().unwrap();
        let (a, b) = (NodeId::new("a-0001").unwrap(), NodeId::new("b-0002").unwrap());
        for (domain, is_left) in [("local-0123abcd", false), ("lab", true), ("local-network", true)] {
            let dir = AccessDir::open(runtime.path(), &DomainName::new(domain).unwrap()).unwrap();
            dir.token().unwrap();
            for id in [&a, &b] {
                let address = "127.0.0.1:1".parse().unwrap();
                let access = Access { id: id.clone(), address, pid: 1, incarnation: Incarnation(1) };
                dir.write(&access).unwrap();
            }
            dir.leave(&a);
            assert!(runtime.path().join(domain).join("token").exists());
            dir.leave(&b);
            assert_eq!(runtime.path().join(domain).exists(), is_left, "{domain}");
        }
    }

    #[test]
    fn stale_private_domains_are_swept_and_living_ones_are_not() {
        let runtime = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - 2 * STALE_AFTER;
        let make = |domain: &str, pid: u32| {
            let dir = AccessDir::open(runtime.path(), &DomainName::new(domain).unwrap()).unwrap();
            dir.token().unwrap();
            let (id, address) = (NodeId::new("a-0001").unwrap(), "127.0.0.1:1".parse().unwrap());
            dir.write(&Access { id, address, pid, incarnation: Incarnation(1) }).unwrap();
            fs::File::open(&dir.0).unwrap().set_modified(old).unwrap();
        };
        make("local-00000001", i32::MAX as u32);
        make("local-00000002", std::process::id());
        make("lab", i32::MAX as u32);
        AccessDir::open(runtime.path(), &DomainName::new("local-00000003").unwrap()).unwrap();
        let left = |domain: &str| runtime.path().join(domain).exists();
        assert_eq!(["local-00000001", "local-00000002", "lab"].map(left), [false, true, true]);
    }
}
