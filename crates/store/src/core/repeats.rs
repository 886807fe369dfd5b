//! Appends that a client repeats because it never saw the reply.
//!
//! SmartRedis sends a command again when its connection broke or a reply was late. An append that was carried out would
//! be there twice. So the last append of a connection that ended unanswered is remembered; the same append from another
//! connection is answered without being done.

use super::session::Append;
use super::value::List;
use bytes::Bytes;
use phalanx_types::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// SmartRedis tries for 100 seconds.
const REMEMBERED: Duration = Duration::from_secs(120);

/// How many appends are remembered.
const MOST: usize = 4096;

/// How far from the end of a list the elements are looked for: other clients may have appended since.
const SEARCHED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Repeats {
    unanswered: VecDeque<(Time, Append)>,
}

impl Repeats {
    pub(crate) fn remember(&mut self, now: Time, append: Append) {
        self.forget_old(now);
        if self.unanswered.len() == MOST {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((now, append));
    }

    fn forget_old(&mut self, now: Time) {
        while self.unanswered.front().is_some_and(|(at, _)| now.since(*at) > REMEMBERED) {
            self.unanswered.pop_front();
        }
    }

    /// Whether these elements, about to be appended, are in the list already by an append that was not answered.
    pub(crate) fn take(&mut self, now: Time, key: &Bytes, items: &[Bytes], list: &List) -> bool {
        if self.unanswered.is_empty() {
            return false;
        }
        self.forget_old(now);
        let Some(at) =
            self.unanswered.iter().position(|(_, append)| append.key == *key && append.items == items)
        else {
            return false;
        };
        self.unanswered.remove(at);
        ends_with(list, items)
    }
}

/// Whether the elements stand together near the end of the list.
fn ends_with(list: &List, items: &[Bytes]) -> bool {
    let have = list.items();
    let last = have.len().saturating_sub(items.len());
    let first = last.saturating_sub(SEARCHED);
    (first..=last).rev().any(|at| have.range(at..).take(items.len()).eq(items))
}
