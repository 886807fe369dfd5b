//! A timeline of all replicas, as viewers of Chrome traces open it.

use phalanx_types::Epoch;
use phalanx_wire::train::{Activity, Span};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that replicas say they did.
///
/// Spans count from the moment at which their group began, which all its replicas saw together, so they stand on one
/// clock whatever the clocks of their machines say.
#[derive(Debug, Default)]
pub(super) struct Trace {
    groups: BTreeMap<Epoch, (Duration, Vec<String>)>,
    spans: Vec<(Epoch, usize, Span)>,
}

impl Trace {
    pub(super) fn on_group(&mut self, epoch: Epoch, at: Duration, nodes: &[String]) {
        self.groups.insert(epoch, (at, nodes.to_vec()));
    }

    pub(super) fn on_spans(&mut self, epoch: Epoch, rank: usize, spans: Vec<Span>) {
        self.spans.extend(spans.into_iter().map(|span| (epoch, rank, span)));
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
            let start = began.as_micros() as u64 + span.start_us;
            let args = json!({ "step": span.step + 1, "epoch": epoch.0, "rank": rank });
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
