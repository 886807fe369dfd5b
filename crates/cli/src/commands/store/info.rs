//! `phalanx store info`.

use super::at::{At, failure};
use crate::failure::Failure;
use crate::output::{Output, Render};
use clap::Args;
use phalanx_store_client::StoreSummary;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store info
  phalanx store info --at n1.example:6780 --password-file secret --output json")]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Info(StoreSummary);

impl Render for Info {
    fn table(&self) -> String {
        let limit = match self.0.memory_bytes {
            0 => "no limit".to_owned(),
            bytes => format!("of {}", ByteSize(bytes)),
        };
        let uptime = humantime::format_duration(Duration::from_secs(self.0.uptime_seconds));
        let nodes = if self.0.nodes == 1 { String::new() } else { format!("{} nodes, ", self.0.nodes) };
        let mut disk = String::new();
        if self.0.spilled_bytes > 0 || self.0.persisted_bytes > 0 {
            let (spilled, kept) = (ByteSize(self.0.spilled_bytes), ByteSize(self.0.persisted_bytes));
            disk = format!("\ndisk      {spilled} out of memory, {kept} kept");
        }
        if let Some(reason) = &self.0.refuses_writes {
            disk.push_str(&format!("\nrefuses   {reason}"));
        }
        format!(
            "store     {} ({nodes}version {}, up {uptime})\nkeys      {}\nmemory    {} {limit}{disk}\nclients   {}\n\
             commands  {}, {} refused for memory",
            self.0.address,
            self.0.version,
            self.0.keys,
            ByteSize(self.0.resident_bytes),
            self.0.clients,
            self.0.commands,
            self.0.refused_for_memory,
        )
    }

    fn quiet(&self) -> String {
        self.0.keys.to_string()
    }
}

pub(crate) fn run(args: &InfoArgs, output: Output) -> Result<(), Failure> {
    let summary = args.at.connect()?.summary().map_err(failure)?;
    output.print(&Info(summary))
}
