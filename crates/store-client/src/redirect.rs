//! What a cluster says instead of an answer, and when to try again. Pure.

use crate::slot_map::joined;
use phalanx_resp::Reply;
use std::time::Duration;

/// How often a command may be sent elsewhere before that is an error.
const MOST_MOVES: u32 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why a node did not carry out a command that others may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Another node has the slot now.
    Moved(String),
    /// This key is at another node already, which has to be asked in a special way.
    Ask(String),
    /// The cluster cannot carry it out at the moment.
    NotNow(String),
}

impl Redirect {
    /// Reads a reply of the node at `asked`; `None` if it is an answer.
    pub(crate) fn read(reply: &Reply, asked: &str) -> Option<Self> {
        let Reply::Error(text) = reply else { return None };
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split(' ');
        let kind = words.next()?;
        match kind {
            "MOVED" | "ASK" => {
                let (host, port) = words.nth(1)?.rsplit_once(':')?;
                let node = joined(host, port, asked);
                Some(if kind == "MOVED" { Self::Moved(node) } else { Self::Ask(node) })
            }
            "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "MASTERDOWN" | "READONLY" => {
                Some(Self::NotNow(text.to_owned()))
            }
            _ => None,
        }
    }
}

/// What stands in the way of a command; the last is the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    /// It has to go to another node.
    Elsewhere,
    /// The connection to the only server broke; there may be a server to connect to again.
    Broken,
    /// Its node is gone, or cannot carry it out now. It is final if there is no replica that may take over.
    Gone { is_final: bool },
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send it at once.
    Now,
    /// Send it after this time.
    After(Duration),
    /// Tell the caller.
    GiveUp,
}

/// The attempts at one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// How long a replica may take to step in.
    takeover: Duration,
    moves: u32,
    was_reopened: bool,
    pause: Duration,
}

impl Attempts {
    pub(crate) fn new(takeover: Duration) -> Self {
        Self { takeover, moves: 0, was_reopened: false, pause: FIRST_PAUSE }
    }

    /// Decides how to go on, `elapsed` after the call began.
    pub(crate) fn next(&mut self, obstacle: Obstacle, elapsed: Duration) -> Next {
        match obstacle {
            Obstacle::Elsewhere if self.moves < MOST_MOVES => {
                self.moves += 1;
                Next::Now
            }
            Obstacle::Broken if !self.was_reopened => {
                self.was_reopened = true;
                Next::Now
            }
            Obstacle::Gone { is_final: false } if elapsed < self.takeover => {
                let pause = self.pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                Next::After(pause.min(self.takeover - elapsed))
            }
            Obstacle::Elsewhere | Obstacle::Broken | Obstacle::Gone { .. } => Next::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read_and_answers_are_left() {
        let read = |text: &str| Redirect::read(&Reply::error(text), "me:1");
        assert_eq!(read("MOVED 3999 h:6381"), Some(Redirect::Moved("h:6381".into())));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirect::Moved("me:6381".into())));
        assert_eq!(read("ASK 3999 ::1:6381"), Some(Redirect::Ask("[::1]:6381".into())));
        let down = "CLUSTERDOWN The cluster is down";
        assert_eq!(read(down), Some(Redirect::NotNow(down.into())));
        for answer in ["ERR no", "MOVED", "MOVED 1", "MOVED 1 nowhere", "WRONGTYPE x"] {
            assert_eq!(read(answer), None, "{answer}");
        }
        assert_eq!(Redirect::read(&Reply::bulk("MOVED 1 h:2"), "me:1"), None);
    }

    #[test]
    fn a_broken_connection_is_opened_once() {
        let mut attempts = Attempts::new(Duration::ZERO);
        assert_eq!(attempts.next(Obstacle::Broken, Duration::ZERO), Next::Now);
        assert_eq!(attempts.next(Obstacle::Broken, Duration::ZERO), Next::GiveUp);
    }

    #[test]
    fn commands_that_go_in_circles_end() {
        let mut attempts = Attempts::new(Duration::ZERO);
        let first = (0..).find(|_| attempts.next(Obstacle::Elsewhere, Duration::ZERO) == Next::GiveUp);
        assert_eq!(first, Some(MOST_MOVES));
    }

    #[test]
    fn a_lost_node_is_waited_for_only_while_a_replica_may_step_in() {
        let mut attempts = Attempts::new(Duration::from_millis(100));
        let gone = |is_final| Obstacle::Gone { is_final };
        assert_eq!(attempts.next(gone(true), Duration::ZERO), Next::GiveUp);
        let ms = Duration::from_millis;
        assert_eq!(attempts.next(gone(false), ms(0)), Next::After(ms(10)));
        assert_eq!(attempts.next(gone(false), ms(10)), Next::After(ms(20)));
        assert_eq!(attempts.next(gone(false), ms(95)), Next::After(ms(5)));
        assert_eq!(attempts.next(gone(false), ms(100)), Next::GiveUp);
    }
}
