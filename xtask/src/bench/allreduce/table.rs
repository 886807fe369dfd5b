//! What the sides measured, side by side, and which bars are met.

use super::super::{median, say};
use super::peers::Transport;
use super::{Case, KIB, MIB, Runs, Side};
use anyhow::Context;
use serde_json::{Value, json};

/// What the numbers depend on.
pub(super) struct Circumstances {
    pub(super) rounds: u32,
    pub(super) cores: usize,
    pub(super) versions: [String; 2],
    /// Before and after.
    pub(super) load: [Option<f64>; 2],
}

/// What one side measured: medians over the rounds.
pub(super) struct Measured {
    latency_us: f64,
    algbw_gb_s: f64,
    cpu_us: f64,
}

pub(super) struct Row {
    case: Case,
    ours: Measured,
    private: Option<Measured>,
    mpi: Measured,
    gloo: Measured,
    /// How many times as fast as the better peer.
    ratio: f64,
    bar: Option<Bar>,
    /// Shares of what the machine's memory allows, and that limit.
    limit: Option<(f64, f64)>,
}

/// What is aimed at, and whether it was reached.
struct Bar {
    name: &'static str,
    met: bool,
}

pub(super) fn rows(runs: &Runs, circumstances: &Circumstances) -> anyhow::Result<Vec<Row>> {
    runs.iter()
        .map(|(case, sides)| {
            let of = |side: Side| sides.get(&side).map(|runs| Measured::new(runs)).transpose();
            let missing = "a side measured nothing";
            let ours = of(Side::Ours)?.context(missing)?;
            let (mpi, gloo) = (of(Side::OpenMpi)?.context(missing)?, of(Side::Gloo)?.context(missing)?);
            let ratio = mpi.latency_us.min(gloo.latency_us) / ours.latency_us;
            let bar = bar(*case, ratio, mpi.latency_us / ours.latency_us, circumstances.cores);
            let runs = sides.get(&Side::Ours).context(missing)?;
            let limit = median(runs, "limit_share").ok().zip(median(runs, "limit_gb_s").ok());
            Ok(Row { case: *case, ours, private: of(Side::OursPrivate)?, mpi, gloo, ratio, bar, limit })
        })
        .collect()
}

/// What a case should reach, if anything.
fn bar(case: Case, ratio: f64, ratio_to_mpi: f64, cores: usize) -> Option<Bar> {
    const SMALL: u64 = 4 * KIB;
    const LARGE: u64 = 64 * MIB;
    match (case.transport, case.bytes) {
        (Transport::Shared, LARGE..) => Some(Bar { name: "2.5x", met: ratio >= 2.5 }),
        (Transport::Shared, SMALL) if case.ranks as usize <= cores => {
            Some(Bar { name: "OpenMPI", met: ratio_to_mpi >= 1.0 })
        }
        (Transport::Shared, SMALL) => None,
        (Transport::Shared, _) => Some(Bar { name: "1.5x", met: ratio >= 1.5 }),
        (Transport::Tcp, LARGE) => Some(Bar { name: "1.1x", met: ratio >= 1.1 }),
        (Transport::Tcp, _) => None,
    }
}

impl Measured {
    fn new(runs: &[Value]) -> anyhow::Result<Self> {
        let latency_us = median(runs, "latency_us")?;
        Ok(Self {
            latency_us,
            algbw_gb_s: median(runs, "bytes")? / latency_us / 1e3,
            cpu_us: median(runs, "cpu_us")?,
        })
    }

    /// The rate, or for little data the time.
    fn text(&self, bytes: u64) -> String {
        if bytes < MIB {
            format!("{:.1} µs", self.latency_us)
        } else {
            format!("{:.2} GB/s", self.algbw_gb_s)
        }
    }

    fn json(&self) -> Value {
        json!({ "latency_us": self.latency_us, "algbw_gb_s": self.algbw_gb_s, "cpu_us": self.cpu_us })
    }
}

pub(super) fn print(rows: &[Row], circumstances: &Circumstances) {
    let titles = ["ours", "private", "OpenMPI", "Gloo", "ratio", "bar", "", "CPU µs", "OpenMPI", "Gloo"];
    line("", "size", "ranks", titles.map(str::to_owned));
    for row in rows {
        let Case { transport, ranks, bytes } = row.case;
        let (name, met) =
            row.bar.as_ref().map_or(("", ""), |bar| (bar.name, if bar.met { "met" } else { "missed" }));
        let texts = [
            row.ours.text(bytes),
            row.private.as_ref().map_or(String::new(), |private| private.text(bytes)),
            row.mpi.text(bytes),
            row.gloo.text(bytes),
            format!("{:.2}x", row.ratio),
            name.to_owned(),
            met.to_owned(),
            format!("{:.0}", row.ours.cpu_us),
            format!("{:.0}", row.mpi.cpu_us),
            format!("{:.0}", row.gloo.cpu_us),
        ];
        line(transport.word(), &size(bytes), &ranks.to_string(), texts);
    }
    for row in rows.iter().filter(|row| row.case.bytes == 64 * MIB) {
        if let Some((share, limit)) = row.limit {
            let (percent, ranks) = (share * 100.0, row.case.ranks);
            say(&format!(
                "64 MiB with {ranks} ranks: {percent:.0}% of the {limit:.2} GB/s that memory allows"
            ));
        }
    }
    let Circumstances { rounds, cores, versions, load } = circumstances;
    let [before, after] = load.map(|load| load.map_or("unknown".to_owned(), |load| format!("{load:.2}")));
    say(&format!(
        "{}; {cores} cores, {rounds} rounds, load {before} before and {after} after",
        versions.join(", ")
    ));
}

fn line<const N: usize>(transport: &str, size: &str, ranks: &str, texts: [String; N]) {
    let texts: String = texts.iter().map(|text| format!("{text:>13}")).collect();
    say(&format!("{transport:<8}{size:>8}{ranks:>7}{texts}"));
}

fn size(bytes: u64) -> String {
    if bytes < MIB { format!("{} KiB", bytes / KIB) } else { format!("{} MiB", bytes / MIB) }
}

pub(super) fn json(rows: &[Row], circumstances: &Circumstances) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "transport": row.case.transport.word(),
                "ranks": row.case.ranks,
                "bytes": row.case.bytes,
                "phalanx": row.ours.json(),
                "phalanx_private": row.private.as_ref().map(Measured::json),
                "openmpi": row.mpi.json(),
                "gloo": row.gloo.json(),
                "ratio": row.ratio,
                "bar": row.bar.as_ref().map(|bar| bar.name),
                "met": row.bar.as_ref().map(|bar| bar.met),
                "limit_share": row.limit.map(|(share, _)| share),
                "limit_gb_s": row.limit.map(|(_, limit)| limit),
            })
        })
        .collect();
    json!({
        "rows": rows,
        "rounds": circumstances.rounds,
        "cores": circumstances.cores,
        "versions": circumstances.versions,
        "load": circumstances.load,
    })
}
