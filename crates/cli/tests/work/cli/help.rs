//! Every command explains itself, with an example.

use super::sandbox;
use phalanx_testkit::Sandbox;

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    // A description that goes on in another line is indented further.
    let begins = |line: &&str| line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with(' '));
    let names = listed.take_while(|line| !line.is_empty()).filter(begins);
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Checks the help of a command and its subcommands; returns the number of commands that do something.
fn check(sandbox: &Sandbox, path: &[String]) -> usize {
    let help = sandbox.stdout(&[path, &["--help".to_owned()]].concat());
    let below = commands(&help);
    if below.is_empty() {
        let command = format!("phalanx {}", path.join(" "));
        assert!(help.contains("Example"), "`{command} --help` has no example:\n{help}");
        let example = help.split("Example").nth(1).unwrap();
        assert!(example.contains(&command), "the example does not use `{command}`:\n{help}");
        assert!(help.contains("--output"), "{help}");
        return 1;
    }
    below.into_iter().map(|name| check(sandbox, &[path, &[name]].concat())).sum()
}

#[test]
fn every_command_has_help_with_an_example() {
    let sandbox = sandbox();
    let checked = check(&sandbox, &[]);
    assert!(checked >= 12, "only {checked} commands are listed");
}

#[test]
fn the_version_is_told() {
    let version = sandbox().stdout(&["--version"]);
    assert_eq!(version, format!("phalanx {}\n", env!("CARGO_PKG_VERSION")));
}
