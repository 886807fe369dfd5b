//! A thread that listens for the abort of a group of several hosts.
//!
//! ```text
//!   within a host: LEAVE when a rank drops its group, ABORT and a reason when it aborts the group
//! ```
//! A rank that waits for shared memory is woken through shared memory. But a leader may wait for another host, or not
//! wait at all, so it runs a thread that listens here. A stream that closes without a message means that its rank is
//! lost.
//!
//! Links detect an abort while they are in use. The thread watches them while they are not: a rank that aborts closes
//! its side of every stream after its last message.

use super::links_end::Remains;
use crate::shell::links::Socket;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

const LEAVE: u8 = 1;
const ABORT: u8 = 2;
/// The most bytes of a reason.
const REASON: usize = 512;

/// How soon to check again whether the call that may receive an abort has ended.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A stream to another rank.
#[derive(Debug)]
pub(super) struct AlarmStream {
    /// The rank in the whole group.
    pub(super) rank: usize,
    pub(super) stream: Socket,
}

#[derive(Debug)]
pub(super) struct Alarm {
    posts: Vec<AlarmStream>,
    /// Readable once the thread should stop listening.
    stop: OwnedFd,
}

impl Alarm {
    pub(super) fn new(posts: Vec<AlarmStream>) -> io::Result<Self> {
        for post in &posts {
            post.stream.set_nonblocking(true)?;
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { posts, stop })
    }

    pub(super) fn abort(&self, reason: &str) {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(REASON)];
        let length = (reason.len() as u16).to_le_bytes();
        self.say(&[&[ABORT], length.as_slice(), reason].concat());
    }

    /// Tells the other ranks that this rank is done.
    pub(super) fn leave(&self) {
        self.say(&[LEAVE]);
    }

    /// Makes [`Alarm::listen`] return.
    pub(super) fn stop(&self) {
        if let Err(error) = rustix::io::write(&self.stop, &1u64.to_ne_bytes()) {
            tracing::warn!(%error, "could not stop listening to the ranks of this host");
        }
    }

    /// Messages are so short that the socket always has room; a lost rank need not receive them.
    fn say(&self, word: &[u8]) {
        for AlarmStream { rank, stream } in &self.posts {
            let mut stream = stream;
            if let Err(error) = stream.write_all(word) {
                tracing::debug!(rank, %error, "could not tell a rank of this host");
            }
        }
    }

    /// Waits until a rank aborts the group or is lost, and returns the reason; `None` after [`Alarm::stop`]. `leaders`
    /// are the streams to other hosts; `remains` returns what is left in a stream that has ended.
    pub(super) fn listen(
        &self,
        leaders: &[AlarmStream],
        remains: impl Fn(&AlarmStream) -> Remains,
    ) -> Option<String> {
        let mut heard: Vec<_> = self.posts.iter().map(|post| (post, Vec::new())).collect();
        let mut leaders: Vec<_> = leaders.iter().map(|post| (post, false)).collect();
        loop {
            let ready = match self.wait(&heard, &leaders) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => return Some(format!("could not listen to the ranks of a host: {error}")),
            };
            let (stop, ready) = ready.split_first()?;
            if !stop.is_empty() {
                return None;
            }
            let (posts_ready, leaders_ready) = ready.split_at(heard.len());
            let mut over = None;
            let mut ready = posts_ready.iter();
            heard.retain_mut(|(post, heard)| {
                let comes = ready.next().is_some_and(|flags| !flags.is_empty());
                match if comes { post.hear(heard) } else { AlarmMessage::Nothing } {
                    AlarmMessage::Nothing => true,
                    AlarmMessage::Left => false,
                    AlarmMessage::Over(reason) => over.replace(reason).is_none(),
                }
            });
            let mut ready = leaders_ready.iter();
            leaders.retain_mut(|(post, silent)| {
                let flags = ready.next().copied().unwrap_or(PollFlags::empty());
                *silent |= !flags.is_empty();
                let failed = || format!("rank {} is gone: its stream has failed", post.rank);
                match if *silent { remains(post) } else { Remains::Unknown } {
                    Remains::Reason(reason) => over.replace(reason).is_none(),
                    _ if flags.contains(PollFlags::ERR) => over.replace(failed()).is_none(),
                    Remains::Unknown => true,
                    Remains::Nothing => false,
                }
            });
            if over.is_some() {
                return over;
            }
        }
    }

    /// Waits for any stream. Returns what happened on each: first on `stop`, then on the others.
    fn wait(
        &self,
        heard: &[(&AlarmStream, Vec<u8>)],
        leaders: &[(&AlarmStream, bool)],
    ) -> Result<Vec<PollFlags>, Errno> {
        let mut waits = vec![PollFd::new(&self.stop, PollFlags::IN)];
        waits.extend(heard.iter().map(|(post, _)| PollFd::new(&post.stream, PollFlags::IN)));
        let closing = leaders.iter().filter(|(_, silent)| !silent);
        waits.extend(closing.map(|(post, _)| PollFd::new(&post.stream, PollFlags::RDHUP)));
        let again = leaders.iter().any(|(_, silent)| *silent).then_some(&AGAIN);
        poll(&mut waits, again)?;
        let mut ready = waits.iter().map(PollFd::revents);
        let mut all: Vec<PollFlags> = ready.by_ref().take(1 + heard.len()).collect();
        let nothing = PollFlags::empty();
        let flags = |(_, silent): &(&AlarmStream, bool)| if *silent { None } else { ready.next() };
        all.extend(leaders.iter().map(flags).map(|flags| flags.unwrap_or(nothing)));
        Ok(all)
    }
}

enum AlarmMessage {
    Nothing,
    Left,
    Over(String),
}

impl AlarmStream {
    fn hear(&self, heard: &mut Vec<u8>) -> AlarmMessage {
        let mut more = [0; 3 + REASON];
        match (&self.stream).read(&mut more) {
            Ok(0) => return AlarmMessage::Over(format!("rank {} is gone: it closed its stream", self.rank)),
            Ok(got) => heard.extend(&more[..got]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return AlarmMessage::Nothing;
            }
            Err(error) => return AlarmMessage::Over(format!("rank {} is gone: {error}", self.rank)),
        }
        match heard.as_slice() {
            [LEAVE, ..] => AlarmMessage::Left,
            [ABORT, low, high, reason @ ..] => {
                let length = usize::from(u16::from_le_bytes([*low, *high])).min(REASON);
                match reason.get(..length) {
                    Some(reason) => AlarmMessage::Over(String::from_utf8_lossy(reason).into_owned()),
                    None => AlarmMessage::Nothing,
                }
            }
            [ABORT, ..] => AlarmMessage::Nothing,
            _ => AlarmMessage::Over(format!("rank {} sent an unknown message", self.rank)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_leaves_is_not_lost_and_who_is_lost_is_named() {
        let (here, leaves) = UnixStream::pair().unwrap();
        let (also_here, lost) = UnixStream::pair().unwrap();
        let posts = vec![
            AlarmStream { rank: 4, stream: here.into() },
            AlarmStream { rank: 9, stream: also_here.into() },
        ];
        let alarm = Alarm::new(posts).unwrap();
        Alarm::new(vec![AlarmStream { rank: 0, stream: leaves.into() }]).unwrap().leave();
        drop(lost);
        assert_eq!(alarm.listen(&[], |_| Remains::Nothing).unwrap(), "rank 9 is gone: it closed its stream");
    }

    #[test]
    fn reasons_are_heard_and_stopping_is_no_reason() {
        let (here, there) = UnixStream::pair().unwrap();
        let alarm = Alarm::new(vec![AlarmStream { rank: 1, stream: here.into() }]).unwrap();
        let other = Alarm::new(vec![AlarmStream { rank: 0, stream: there.into() }]).unwrap();
        other.abort(&"ä".repeat(300));
        assert_eq!(alarm.listen(&[], |_| Remains::Nothing).unwrap(), "ä".repeat(256));
        alarm.stop();
        assert_eq!(alarm.listen(&[], |_| Remains::Nothing), None);
    }

    #[test]
    fn leaders_are_asked_for_their_last_word_when_they_are_silent() {
        let alarm = Alarm::new(Vec::new()).unwrap();
        let leader = |rank: usize| {
            let (here, there) = UnixStream::pair().unwrap();
            (AlarmStream { rank, stream: here.into() }, there)
        };
        let (here, there): (Vec<_>, Vec<_>) = [3, 5, 6].map(leader).into_iter().unzip();
        let mut there = there.into_iter();
        let _speaks = there.next().unwrap();
        drop(there);
        let asked = std::cell::Cell::new(0);
        let remains = |post: &AlarmStream| {
            let rank = post.rank;
            asked.set(asked.get() + 1);
            match (rank, asked.get()) {
                (5, _) => Remains::Nothing,
                // The first attempts found a call under way.
                (6, 5..) => Remains::Reason("enough".to_owned()),
                (6, _) => Remains::Unknown,
                _ => panic!("leader {rank} was asked"),
            }
        };
        assert_eq!(alarm.listen(&here, remains).unwrap(), "enough");
        assert_eq!(asked.get(), 5);
    }
}
