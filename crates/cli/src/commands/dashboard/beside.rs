//! `--dashboard` on any command: a dashboard in a process of its own, so that it costs the command nothing.

use crate::own_program::{own_arguments, own_program};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

/// Options of a command that say which domain is meant; each has a value.
const DOMAIN: [&str; 5] = ["--domain", "--key", "--connect", "--relay", "--heartbeat"];

/// A dashboard that ends with this value, and with this process.
#[derive(Debug)]
pub(crate) struct Beside {
    child: Child,
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Starts a dashboard for the command of this process. If that is not possible, the command goes on without one.
#[expect(clippy::print_stderr, reason = "says where the page is, beside what the command prints")]
pub(crate) fn start(bind: SocketAddr) -> Option<Beside> {
    let arguments = own_arguments();
    let mut command = own_program().command();
    command.arg("dashboard").args(["--output", "quiet", "--bind"]).arg(bind.to_string());
    if let Some(run) = value_of(&arguments, &["--run-dir", "-o"]) {
        let runs = Path::new(run).parent().filter(|parent| !parent.as_os_str().is_empty());
        let runs = runs.unwrap_or(Path::new("."));
        // The command reports what it cannot write.
        let _made = std::fs::create_dir_all(runs);
        command.arg(runs);
    }
    command.args(domain_of(&arguments));
    // It ends when its output has no reader any more, which is when this process ends.
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        command.spawn().inspect_err(|error| tracing::warn!(%error, "could not start a dashboard")).ok()?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    let beside = Beside { child };
    if !matches!(stdout, Some(Ok(1..))) {
        tracing::warn!("there is no dashboard; the command goes on");
        return None;
    }
    eprintln!("dashboard at {}", line.trim_end());
    Some(beside)
}

/// The options of this command that say which domain is meant.
pub(super) fn domain_words() -> Vec<OsString> {
    domain_of(&own_arguments())
}

fn domain_of(arguments: &[OsString]) -> Vec<OsString> {
    let given = |name: &&'static str| Some([OsString::from(name), value_of(arguments, &[name])?.to_owned()]);
    let silent = arguments.iter().take_while(|word| *word != "--").any(|word| word == "--no-mdns");
    let silent = silent.then(|| OsString::from("--no-mdns"));
    DOMAIN.iter().filter_map(given).flatten().chain(silent).collect()
}

/// The value of the last of these options: `--name value`, `--name=value`. What comes after `--` is not ours.
fn value_of<'a>(arguments: &'a [OsString], names: &[&str]) -> Option<&'a OsStr> {
    let own = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let own = &arguments[..own];
    own.iter().enumerate().rev().find_map(|(at, word)| {
        if names.iter().any(|name| word == name) {
            return own.get(at + 1).map(OsString::as_os_str);
        }
        let (name, value) = word.to_str()?.split_once('=')?;
        names.contains(&name).then(|| OsStr::new(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_looks_where_the_command_works() {
        let words =
            ["train", "a.toml", "--domain=lab", "-o", "x/first", "--domain", "home", "--", "--key", "k"];
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        assert_eq!(value_of(&words, &["--domain"]), Some(OsStr::new("home")));
        assert_eq!(value_of(&words, &["--run-dir", "-o"]), Some(OsStr::new("x/first")));
        assert_eq!(value_of(&words, &["--key"]), None);
        assert_eq!(domain_of(&words), ["--domain", "home"]);
        let words = ["dashboard", "--no-mdns", "--no-domain"].map(OsString::from);
        assert_eq!(domain_of(&words), ["--no-mdns"]);
    }
}
