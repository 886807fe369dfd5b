//! Trainers fed by a stream, and plain sockets.

use super::Bench;
use crate::bench::median;
use crate::bench::rows::{Bar, Row};

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let runs = (0..bench.rounds).map(|_| bench.own("trainer", bench.servers.ours()));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for (key, model) in [("digits_cnn", "digits-cnn"), ("mlp", "mlp")] {
        let rate = |from| median(&runs, &format!("trainer_{key}_{from}_samples_per_s"));
        rows.push(Row {
            part: "trainer",
            what: format!("{model} fed by a stream"),
            unit: "samples/s",
            ours: rate("stream")?,
            peer: Some(("a file", rate("file")?)),
            more_is_better: true,
            bar: Bar::TimesBetter(Some(0.95)),
        });
    }
    let (part, what, unit) = ("trainer", "a trainer that waits, 4 s".to_owned(), "commands");
    let (ours, peer, more_is_better, bar) =
        (median(&runs, "trainer_wait_commands")?, None, false, Bar::AtMost(0.0));
    rows.push(Row { part, what, unit, ours, peer, more_is_better, bar });
    Ok(rows)
}
