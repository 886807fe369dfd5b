use super::*;

#[test]
fn messages_reach_channels_and_patterns() {
    let mut f = Fixture::new();
    let subscribed = f.outcome(2, "SUBSCRIBE news other");
    let Outcome::Replies(replies) = subscribed else { panic!("{subscribed:?}") };
    let replies: Vec<_> = replies.iter().map(shown).collect();
    assert_eq!(replies, [">[\"subscribe\" \"news\" :1]", ">[\"subscribe\" \"other\" :2]"]);
    f.outcome(3, "PSUBSCRIBE n*");
    assert_eq!(f.run("PUBLISH news hi"), Reply::Integer(2));
    assert_eq!(
        f.messages(),
        [(2, ">[\"message\" \"news\" \"hi\"]".into()), (3, ">[\"pmessage\" \"n*\" \"news\" \"hi\"]".into())]
    );
    f.check(&[
        ("PUBSUB CHANNELS", "[\"news\" \"other\"]"),
        ("PUBSUB NUMSUB news none", "[\"news\" :1 \"none\" :0]"),
        ("PUBSUB NUMPAT", ":1"),
    ]);
    assert_eq!(shown(&f.run_as(2, "PING")), "[\"pong\" \"\"]");
    assert!(shown(&f.run_as(2, "GET a")).starts_with("!ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
    let Outcome::Replies(left) = f.outcome(2, "UNSUBSCRIBE") else { panic!() };
    assert_eq!(
        left.iter().map(shown).collect::<Vec<_>>(),
        [">[\"unsubscribe\" \"news\" :1]", ">[\"unsubscribe\" \"other\" :0]"]
    );
    f.store.disconnect(f.now, ClientId(3), Ending::Answered);
    assert_eq!(f.run("PUBLISH news hi"), Reply::Integer(0));
}

#[test]
fn without_the_password_nothing_is_done() {
    let mut f = Fixture::with(Settings { password: Some("secret".into()), ..Settings::default() });
    f.check(&[
        ("GET a", "!NOAUTH Authentication required."),
        ("PING", "!NOAUTH Authentication required."),
        ("AUTH wrong", "!WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH other secret", "!WRONGPASS invalid username-password pair or user is disabled."),
        ("HELLO 3 AUTH default wrong", "!WRONGPASS invalid username-password pair or user is disabled."),
    ]);
    assert!(!f.out.authenticated && f.out.version.is_none());
    assert!(shown(&f.run("HELLO 3")).starts_with("!NOAUTH HELLO must be called"));
    assert_eq!(f.run("AUTH default secret"), Reply::OK);
    assert!(f.out.authenticated);
    f.check(&[("GET a", "nil"), ("RESET", "RESET"), ("GET a", "!NOAUTH Authentication required.")]);
}

#[test]
fn a_client_chooses_its_version() {
    let mut f = Fixture::new();
    assert_eq!(shown(&f.run("HELLO 4")), "!NOPROTO unsupported protocol version");
    let hello = shown(&f.run("HELLO 3 SETNAME me"));
    assert!(hello.contains("\"proto\"=:3") && hello.contains("\"server\"=\"redis\""), "{hello}");
    assert_eq!(f.out.version, Some(phalanx_resp::Version::Resp3));
    f.check(&[("CLIENT GETNAME", "\"me\""), ("CLIENT ID", ":1")]);
    assert!(shown(&f.run("CLIENT LIST")).contains("name=me"));
}

#[test]
fn clients_can_be_closed_and_silenced() {
    let mut f = Fixture::new();
    assert_eq!(f.run("CLIENT KILL ID 3"), Reply::Integer(1));
    assert_eq!(f.out.closed, [ClientId(3)]);
    assert_eq!(f.outcome(1, "QUIT"), Outcome::Close(Reply::OK));
    assert_eq!(f.outcome(1, "CLIENT REPLY OFF"), Outcome::Silent);
    assert_eq!(f.outcome(1, "SET a 1"), Outcome::Silent);
    assert_eq!(f.outcome(1, "CLIENT REPLY ON"), Outcome::Reply(Reply::OK));
    assert_eq!(f.outcome(1, "CLIENT REPLY SKIP"), Outcome::Silent);
    assert_eq!(f.outcome(1, "GET a"), Outcome::Silent);
    assert_eq!(f.outcome(1, "GET a"), Outcome::Reply(Reply::bulk("1")));
}

#[test]
fn one_node_owns_all_slots() {
    let mut f = Fixture::new();
    let id = shown(&f.run("CLUSTER MYID"));
    f.check(&[
        ("CLUSTER SLOTS", &format!("[[:0 :16383 [\"127.0.0.1\" :6780 {id}]]]")),
        ("CLUSTER KEYSLOT foo", ":12182"),
        ("SET foo 1", "OK"),
        ("CLUSTER COUNTKEYSINSLOT 12182", ":1"),
        ("CLUSTER COUNTKEYSINSLOT 16384", "!ERR Invalid slot"),
        ("CLUSTER MEET a b", "!ERR unknown subcommand 'MEET'. Try CLUSTER HELP."),
    ]);
}

#[test]
fn parameters_are_known_by_name() {
    Fixture::new().check(&[
        ("CONFIG GET lua-*", "{\"lua-time-limit\"=\"5000\"}"),
        ("CONFIG SET lua-time-limit 7", "OK"),
        ("CONFIG GET lua-time-limit", "{\"lua-time-limit\"=\"7\"}"),
        ("CONFIG GET none", "{}"),
        ("CONFIG SET none 1", "!ERR Unknown option or number of arguments for CONFIG SET"),
        (
            "CONFIG SET port 1",
            "!ERR CONFIG SET failed - this parameter cannot be changed while the server runs",
        ),
        ("CONFIG SET maxmemory x", "!ERR CONFIG SET failed - this value cannot be used"),
        ("COMMAND INFO get", "[[\"get\" :2 [readonly] :1 :1 :1 [] [] [] []]]"),
        ("COMMAND INFO none", "[nil-array]"),
    ]);
}

#[test]
fn commands_are_found_by_name_in_any_case() {
    let f = Fixture::new();
    for (before, after) in f.store.commands.iter().zip(&f.store.commands[1..]) {
        assert!(before.name < after.name, "{} is there twice", before.name);
    }
    for command in &f.store.commands {
        assert_eq!(command.name, command.name.to_lowercase());
        let found = f.store.find(command.name.to_uppercase().as_bytes()).map(|found| found.name);
        assert_eq!(found, Some(command.name));
    }
    assert!(f.store.find(&[b'a'; 1000]).is_none());
}
