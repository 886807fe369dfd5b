//! Who uses how much of a node, as people see it.

use phalanx_types::ByteSize;
use phalanx_wire::usage::{Holder, NodeUse};
use serde::Serialize;

/// A part of a node that is in use.
#[derive(Debug, Serialize)]
pub(super) struct UseRow {
    kind: &'static str,
    /// Jobs that run, or holders that are not listed one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    /// Of a training run; of ranks only their launcher, as the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    cores: u32,
    memory_bytes: u64,
    #[serde(skip)]
    holder: String,
}

impl UseRow {
    pub(super) fn new(part: &NodeUse) -> Self {
        let (kind, count, run, driver) = match &part.holder {
            Holder::Jobs { running } => ("jobs", Some(*running), None, None),
            Holder::Run { run, driver } => ("run", None, Some(run), Some(driver)),
            Holder::WaitingRun { run, driver } => ("waiting run", None, Some(run), Some(driver)),
            Holder::Others { holders } => ("others", Some(*holders), None, None),
            Holder::Rank { launcher } => ("rank", None, None, Some(launcher)),
            Holder::WaitingRank { launcher } => ("waiting rank", None, None, Some(launcher)),
            Holder::Store => ("store", None, None, None),
        };
        Self {
            kind,
            count,
            run: run.map(ToString::to_string),
            driver: driver.map(ToString::to_string),
            cores: part.cores,
            memory_bytes: part.memory.0,
            holder: part.holder.to_string(),
        }
    }
}

/// One line for all: `2 jobs 1 core, run of main-12ab 1 core 2 GiB`.
pub(super) fn in_words(uses: &[UseRow]) -> String {
    let part = |part: &UseRow| {
        let cores = if part.cores == 1 { "1 core".to_owned() } else { format!("{} cores", part.cores) };
        let memory = match part.memory_bytes {
            0 => String::new(),
            bytes => format!(" {}", ByteSize(bytes)),
        };
        format!("{} {cores}{memory}", part.holder)
    };
    uses.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::RunId;

    #[test]
    fn jobs_and_runs_are_named_with_what_they_use() {
        let run = Holder::Run { run: RunId(0xab), driver: "main-12ab".parse().unwrap() };
        let uses = [
            NodeUse { holder: Holder::Jobs { running: 3 }, cores: 1, memory: ByteSize(0) },
            NodeUse { holder: run, cores: 2, memory: ByteSize::gib(2) },
        ];
        let rows: Vec<UseRow> = uses.iter().map(UseRow::new).collect();
        assert_eq!(in_words(&rows), "3 jobs 1 core, run of main-12ab 2 cores 2 GiB");
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!((&json[0]["kind"], &json[0]["count"]), (&"jobs".into(), &3.into()));
        assert_eq!((&json[1]["driver"], &json[1]["cores"]), (&"main-12ab".into(), &2.into()));
        assert_eq!(json[1]["run"], "00000000000000ab");
    }
}
