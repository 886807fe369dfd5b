//! Why nothing is trained, or fewer trials than could be, in one sentence.

use super::SearchCore;
use crate::core::record::SearchEnd;

impl SearchCore {
    pub(super) fn explain(&self) -> Option<String> {
        match &self.state.ended {
            Some(SearchEnd::Finished) => return Some("the search is finished".to_owned()),
            Some(SearchEnd::Stopped) => return Some("the search was stopped; it can be resumed".to_owned()),
            Some(SearchEnd::Failed { why }) => return Some(format!("the search has failed: {why}")),
            None => {}
        }
        let (queued, running, slots) = (self.state.queued(), self.running.len(), self.slots);
        if slots == 0 {
            let waiting = if queued == 0 { String::new() } else { format!("; {queued} trials wait") };
            return Some(format!("no node is free to train on{waiting}"));
        }
        if running >= slots {
            return None;
        }
        let trained = format!("{running} of {slots} slots are in use");
        if (self.state.trials.len() as u64) >= self.config.trials {
            let what = if self.trains_below_the_last_rung() { "the last of them" } else { "the front" };
            let total = self.config.trials;
            return Some(format!(
                "{trained}: all {total} candidates were proposed, and {what} is being trained"
            ));
        }
        if self.out_of_candidates {
            let refusals = self.candidates.refusals().map_or_else(String::new, |why| format!(" ({why})"));
            return Some(format!("{trained}: the algorithm finds no further candidate{refusals}"));
        }
        let size = self.config.generation?;
        Some(format!("{trained}: all {size} trials of a generation are trained before the next are chosen"))
    }
}
