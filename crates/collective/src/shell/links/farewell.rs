//! Telling the other ranks why the group is over.

use super::frame;
use super::link::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

/// How long peers have to take the last message before their connections are closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends the reason to all peers and closes the connections.
///
/// What can be sent at once is sent before this returns. A thread does the rest: closing a connection while bytes of
/// the peer are unread would discard the reason, so these are read until the peer closes too.
pub(super) fn farewell(links: Vec<Link>, reason: &str) {
    let word = frame::abort(reason);
    let mut open = Vec::new();
    for mut link in links {
        link.notes.extend(&word);
        link.data_out = 0;
        if flush(&mut link) {
            open.push(link);
        }
    }
    if open.is_empty() {
        return;
    }
    let rest = thread::Builder::new().name("farewell".into()).spawn(move || linger(open));
    if let Err(error) = rest {
        tracing::debug!(%error, "closed the links of an aborted group at once");
    }
}

fn linger(mut links: Vec<Link>) {
    let start = Instant::now();
    let mut rest = vec![0; 64 << 10];
    while !links.is_empty() {
        let Some(left) = PATIENCE.checked_sub(start.elapsed()) else { return };
        let mut waits: Vec<_> = links
            .iter()
            .map(|link| {
                let out = if link.notes.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                PollFd::new(&link.stream, PollFlags::IN | out)
            })
            .collect();
        let Ok(timeout) = Timespec::try_from(left) else { return };
        if poll(&mut waits, Some(&timeout)).is_err() {
            return;
        }
        links.retain_mut(|link| {
            let open = match (&link.stream).read(&mut rest) {
                Ok(bytes) => bytes > 0,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
            open && flush(link)
        });
    }
}

/// Sends what it can. Returns whether the connection is still open.
fn flush(link: &mut Link) -> bool {
    if link.notes.is_empty() {
        return true;
    }
    match link.send(&[]) {
        Ok(_) if link.notes.is_empty() => link.stream.shutdown(Shutdown::Write).is_ok(),
        Ok(_) => true,
        Err(_) => false,
    }
}
