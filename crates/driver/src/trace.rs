//! A timeline of all replicas, as viewers of Chrome traces open it.

use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Activity, Span};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most entries of a timeline: more would fill the driver's memory.
const MOST_SPANS: usize = 1 << 21;

/// Everything that replicas say they did.
///
/// Spans count from the moment at which their group began, which all its replicas saw together, so they stand on one
/// clock whatever the clocks of their machines say.
#[derive(Debug, Default)]
pub(super) struct Trace {
    groups: BTreeMap<Epoch, (Duration, Vec<String>)>,
    spans: Vec<(Epoch, usize, Span)>,
    full: bool,
}

impl Trace {
    pub(super) fn on_group(&mut self, epoch: Epoch, at: Duration, nodes: &[String]) {
        self.groups.insert(epoch, (at, nodes.to_vec()));
    }

    /// Keeps what a node did, if it has that rank in that group, up to [`MOST_SPANS`].
    pub(super) fn on_spans(&mut self, epoch: Epoch, rank: usize, node: &NodeId, spans: Vec<Span>) {
        let Some((_, nodes)) = self.groups.get(&epoch) else { return };
        if nodes.get(rank).is_none_or(|at_rank| at_rank != node.as_str()) {
            return;
        }
        let room = MOST_SPANS.saturating_sub(self.spans.len());
        if spans.len() > room && !std::mem::replace(&mut self.full, true) {
            tracing::warn!(most = MOST_SPANS, "the timeline is full and goes no further");
        }
        self.spans.extend(spans.into_iter().take(room).map(|span| (epoch, rank, span)));
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // A process for every node, whatever its rank; a thread for what it computes and one for what it exchanges.
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut events = Vec::new();
        for (_, nodes) in self.groups.values() {
            for node in nodes {
                let next = numbers.len();
                if let std::collections::btree_map::Entry::Vacant(entry) = numbers.entry(node) {
                    entry.insert(next);
                    events.push(
                        json!({ "name": "process_name", "ph": "M", "pid": next, "args": { "name": node } }),
                    );
                }
            }
        }
        for (epoch, rank, span) in &self.spans {
            let Some((began, nodes)) = self.groups.get(epoch) else { continue };
            let Some(number) = nodes.get(*rank).and_then(|node| numbers.get(node.as_str())) else { continue };
            let (name, thread) = words(span.what);
            let start = (began.as_micros() as u64).saturating_add(span.start_us);
            let args = json!({ "step": span.step.saturating_add(1), "epoch": epoch.0, "rank": rank });
            events.push(json!({
                "name": name, "ph": "X", "ts": start, "dur": span.len_us, "pid": number, "tid": thread, "args": args,
            }));
        }
        let trace = json!({ "traceEvents": events, "displayTimeUnit": "ms" });
        format!("{trace}\n").into_bytes()
    }
}

fn words(what: Activity) -> (String, &'static str) {
    match what {
        Activity::Data => ("data".to_owned(), "compute"),
        Activity::Compute => ("compute".to_owned(), "compute"),
        Activity::Bucket { number } => (format!("bucket {number}"), "exchange"),
        Activity::Exchange => ("wait for exchange".to_owned(), "compute"),
        Activity::Vote => ("vote".to_owned(), "compute"),
        Activity::Update => ("update".to_owned(), "compute"),
        Activity::Validate => ("validate".to_owned(), "compute"),
        Activity::Snapshot => ("snapshot".to_owned(), "compute"),
        Activity::Answer => ("answer".to_owned(), "compute"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_any_length_and_of_other_nodes_do_no_harm() {
        let (mut trace, node): (_, NodeId) = (Trace::default(), "n-0001".parse().unwrap());
        trace.on_group(Epoch(1), Duration::from_secs(1), &[node.to_string()]);
        let span = Span { what: Activity::Data, step: u64::MAX, start_us: u64::MAX, len_us: u32::MAX };
        trace.on_spans(Epoch(1), 0, &node, vec![span.clone()]);
        trace.on_spans(Epoch(1), 0, &"other-0001".parse().unwrap(), vec![span.clone()]);
        trace.on_spans(Epoch(1), 1, &node, vec![span.clone()]);
        trace.on_spans(Epoch(2), 0, &node, vec![span.clone()]);
        let json: serde_json::Value = serde_json::from_slice(&trace.to_json()).unwrap();
        let spans = json["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        assert_eq!(spans.count(), 1);
    }
}
