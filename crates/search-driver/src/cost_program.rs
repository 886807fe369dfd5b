//! Objectives that a program of the user's tells before a candidate is trained: it gets the candidate as files and prints
//! a number. The driver runs it, where the search file is.

use phalanx_graph::Graph;
use phalanx_records::with_causes;
use phalanx_search::core::template::{Expanded, SearchFile};
use phalanx_train::TrainedModel;
use phalanx_types::Seed;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A program that takes longer is killed.
const LONGEST: Duration = Duration::from_secs(300);

/// Asks each program once for each network and its training.
#[derive(Debug)]
pub(crate) struct CostPrograms {
    /// The objective and the program with its arguments.
    programs: Vec<(String, Vec<String>)>,
    base: PathBuf,
    known: RefCell<BTreeMap<String, BTreeMap<String, f64>>>,
}

impl CostPrograms {
    pub(crate) fn new(file: &SearchFile, base: &Path) -> Self {
        let program = |spec: &phalanx_search::core::template::ObjectiveSpec| {
            Some((spec.objective.name.clone(), spec.program.clone()?))
        };
        let programs = file.objectives().iter().filter_map(program).collect();
        Self { programs, base: base.to_owned(), known: RefCell::default() }
    }

    /// The values of all objectives that have programs, by name. `candidate` names what is trained.
    pub(crate) fn ask(
        &self,
        candidate: &str,
        expanded: &Expanded,
        graph: &Graph,
    ) -> Result<BTreeMap<String, f64>, String> {
        if self.programs.is_empty() {
            return Ok(BTreeMap::new());
        }
        if let Some(known) = self.known.borrow().get(candidate) {
            return Ok(known.clone());
        }
        let dir = tempfile::tempdir().map_err(|error| with_causes(&error))?;
        let (run, layers, onnx) =
            (dir.path().join("run.toml"), dir.path().join("model.toml"), dir.path().join("model.onnx"));
        let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(|error| with_causes(&error));
        write(&run, &expanded.run)?;
        if let Some(text) = &expanded.model {
            write(&layers, text)?;
        }
        let network = TrainedModel::new(graph.clone(), graph.initialise(Seed(0)));
        network.save_onnx(&onnx).map_err(|error| with_causes(&error))?;
        let mut values = BTreeMap::new();
        for (name, argv) in &self.programs {
            let mut command = Command::new(argv.first().map_or("", String::as_str));
            command
                .args(argv.iter().skip(1))
                .current_dir(&self.base)
                .env("PHALANX_RUN", &run)
                .env("PHALANX_ONNX", &onnx)
                .envs(expanded.genes.iter().map(|(gene, value)| (variable(gene), value)));
            let value = number_of(command).map_err(|why| format!("{} {why}", argv.join(" ")))?;
            values.insert(name.clone(), value);
        }
        self.known.borrow_mut().insert(candidate.to_owned(), values.clone());
        Ok(values)
    }
}

/// The variable of a gene, as programs that are trials have it.
fn variable(gene: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    "PHALANX_GENE_".chars().chain(gene.chars().map(letter)).collect()
}

/// The number in the last line that a program prints.
fn number_of(mut command: Command) -> Result<f64, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let output = within(child, LONGEST)?;
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
    };
    if !output.status.success() {
        return Err(format!("failed ({}): {}", output.status, last(&output.stderr)));
    }
    let printed = last(&output.stdout);
    let number = printed.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("printed no number as its last line: {printed:?}"))
}

/// What a program said, unless it takes too long.
fn within(child: Child, limit: Duration) -> Result<Output, String> {
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let (said, heard) = channel();
    let waiting = std::thread::spawn(move || said.send(child.wait_with_output()));
    let output = match heard.recv_timeout(limit) {
        Ok(output) => output.map_err(|error| error.to_string()),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            if let Some(id) = id {
                // It may have ended just now.
                let _gone = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
            return Err(format!("took longer than {}", humantime::format_duration(limit)));
        }
    };
    let _joined = waiting.join();
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(script: &str) -> Result<f64, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        number_of(command)
    }

    #[test]
    fn the_last_line_of_a_program_is_its_number() {
        assert_eq!(said("echo counting; echo 2.5"), Ok(2.5));
        assert!(said("echo many").unwrap_err().contains("no number"));
        assert!(said("echo nan").unwrap_err().contains("no number"));
        assert!(said("echo broken >&2; exit 3").unwrap_err().contains("broken"));
        assert!(number_of(Command::new("/there/is/no/such/program")).unwrap_err().contains("started"));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let child = Command::new("sleep").arg("100000").stdout(Stdio::piped()).spawn().unwrap();
        assert!(within(child, Duration::from_millis(50)).unwrap_err().contains("longer than 50ms"));
    }
}
