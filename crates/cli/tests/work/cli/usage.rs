//! Invalid command lines: exit code 2, and the option named.

use super::sandbox;

#[test]
fn usage_errors_name_the_option() {
    let sandbox = sandbox();
    let wrong: &[(&[&str], &str)] = &[
        (&["job", "submit", "--wait"], "--kind"),
        (&["job", "submit", "--kind", "echo", "--count", "0"], "--count"),
        (&["job", "submit", "--kind", "echo", "--attempts", "0"], "--attempts"),
        (&["job", "submit", "--kind", "echo", "--memory", "lots"], "--memory"),
        (&["job", "submit", "--kind", "echo", "--deadline", "soon"], "--deadline"),
        (&["job", "submit", "--kind", "echo", "--cout", "3"], "--count"),
        (&["job", "submit", "--kind", "echo", "--arg", "a", "--payload", "/dev/null"], "--payload"),
        (&["job", "submit", "--kind", "echo", "--payload", "no-such-file"], "no-such-file"),
        (&["job", "submit", "--kind", "exec"], "--arg"),
        (&["job", "submit", "--kind", "echo", "--", "ls"], "exec"),
        (&["job", "submit", "--journal", "jobs", "--count", "3"], "--kind"),
        (&["job", "submit", "--journal", "no-such-journal"], "no-such-journal"),
        (&["job", "submit", "--kind", "echo", "--journal", "no-such-dir/jobs"], "no-such-dir/jobs"),
        (&["job", "submit", "--kind", "echo", "--wait", "--journal", "/"], "--journal"),
        (&["job", "show", "first"], "expected a job like 17"),
        (&["job", "cancel"], "JOBS"),
        (&["node", "--cores", "0"], "--cores"),
        (&["node", "--memory=-1GiB"], "--memory"),
        (&["node", "--heartbeat", "2"], "--heartbeat"),
        (&["node", "--heartbeat", "1ms"], "--heartbeat"),
        (&["node", "--name", "a/b"], "--name"),
        (&["job", "submit", "--kind", "echo", "--name", "a b"], "--name"),
        (&["node", "--connect", "nowhere"], "--connect"),
        (&["node", "--relay", "nowhere:port"], "--relay"),
        (&["node", "--bind", "nowhere"], "--bind"),
        (&["node", "--domain", "no/such"], "--domain"),
        (&["node", "--key", "no-such-key"], "no-such-key"),
        (&["nodes", "--output", "xml"], "--output"),
        (&["nodes", "--watch", "--patience", "1s"], "--patience"),
        (&["domain", "new"], "NAME"),
        (&["relay", "--bind", "127.0.0.1:0"], "--domain"),
        (&["bench", "jobs", "--jobs", "1"], "--jobs"),
        (&["simulate", "jobs", "--trace"], "--seed"),
        (&["fly"], "fly"),
        (&[], "Usage"),
    ];
    for (args, names) in wrong {
        let output = sandbox.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(names), "{args:?} should name {names}: {said}");
        assert_eq!(output.stdout, b"", "{args:?}");
    }
}

#[test]
fn what_is_not_there_is_said_with_a_hint() {
    let sandbox = sandbox();
    for verb in ["show", "explain", "cancel"] {
        let said = sandbox.fails(2, &["job", verb, "17"]);
        assert!(said.contains("no main node of domain default has a job 17"), "{said}");
        assert!(said.contains("hint: `phalanx job list"), "{said}");
    }
}

#[test]
fn what_breaks_beyond_the_command_line_is_infrastructure() {
    let sandbox = sandbox();
    // Not even root can create files there.
    for wait in [&["--wait"][..], &[]] {
        let submit = ["job", "submit", "--kind", "echo", "--journal", "/sys/jobs.journal"];
        let said = sandbox.fails(3, &[&submit[..], wait].concat());
        assert!(said.contains("/sys/jobs.journal") && said.contains("caused by: "), "{said}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = sandbox.fails(3, &["node", "--bind", &address]);
    assert!(said.contains(&address) && said.contains("hint: give another --bind"), "{said}");
}

#[test]
fn the_environment_stands_in_for_options_and_options_win() {
    let sandbox = sandbox();
    let submit = ["job", "submit", "--kind", "echo", "--count", "2", "--local", "1", "--wait"];
    let mut command = sandbox.command(&submit);
    let output = command.env("PHALANX_OUTPUT", "json").output().unwrap();
    assert!(output.stdout.starts_with(b"{"), "{output:?}");
    let mut command = sandbox.command(&[&submit[..], &["--output", "quiet"]].concat());
    let output = command.env("PHALANX_OUTPUT", "json").output().unwrap();
    assert_eq!(output.stdout, b"", "{output:?}");
}
