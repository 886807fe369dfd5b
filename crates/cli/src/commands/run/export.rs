//! `phalanx run export`.

use super::curves::read_tables;
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_records::{RunTable, write_csv, write_parquet};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run export first --to metrics.csv
  phalanx run export first second --to metrics.parquet")]
pub(crate) struct ExportArgs {
    /// The runs: their directories, or their names in runs/.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Write their metrics here: FILE.csv or FILE.parquet.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

#[derive(Debug, Serialize)]
struct Exported {
    file: PathBuf,
    runs: Vec<String>,
    rows: usize,
}

impl Render for Exported {
    fn table(&self) -> String {
        format!("wrote {} rows to {}", self.rows, self.file.display())
    }

    fn quiet(&self) -> String {
        self.file.display().to_string()
    }
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Csv,
    Parquet,
}

fn format_of(path: &Path) -> Result<Format, Failure> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("parquet") => Ok(Format::Parquet),
        _ => Err(Failure::usage(anyhow!(
            "metrics are written as .csv or .parquet files, {} is neither",
            path.display()
        ))),
    }
}

pub(crate) fn run(args: &ExportArgs, output: Output) -> Result<(), Failure> {
    let format = format_of(&args.to)?;
    let tables = read_tables(&args.runs)?;
    let context = || format!("could not write {}", args.to.display());
    write(format, &tables, &args.to).with_context(context).map_err(Failure::infrastructure)?;
    output.print(&Exported {
        file: args.to.clone(),
        rows: tables.iter().map(|table| table.rows().len()).sum(),
        runs: tables.into_iter().map(|table| table.run).collect(),
    })
}

fn write(format: Format, tables: &[RunTable], path: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    match format {
        Format::Csv => write_csv(tables, &mut out)?,
        Format::Parquet => write_parquet(tables, &mut out)?,
    }
    Ok(out.flush()?)
}
