use super::*;

#[test]
fn clients_are_served_in_the_order_they_came() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLPOP q r 0"), Outcome::Blocked);
    assert_eq!(f.outcome(3, "BRPOP q 0"), Outcome::Blocked);
    assert_eq!(f.run("RPUSH q a b c"), Reply::Integer(3));
    assert_eq!(f.messages(), [(2, "[\"q\" \"a\"]".into()), (3, "[\"q\" \"c\"]".into())]);
    assert_eq!(shown(&f.run("LRANGE q 0 -1")), "[\"b\"]");
    // Both have what they wanted.
    f.run("RPUSH r x");
    assert_eq!(f.messages(), []);
}

#[test]
fn a_wait_ends_at_its_time() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLPOP q 0.5"), Outcome::Blocked);
    assert_eq!(f.outcome(3, "BLMOVE q r LEFT LEFT 1"), Outcome::Blocked);
    assert_eq!(f.store.next_deadline(), Some(f.now + std::time::Duration::from_millis(500)));
    f.later(500);
    f.out.clear();
    f.store.tick(f.now, &mut f.out);
    assert_eq!(f.messages(), [(2, "nil-array".into())]);
    f.later(500);
    f.out.clear();
    f.store.tick(f.now, &mut f.out);
    assert_eq!(f.messages(), [(3, "nil".into())]);
    assert_eq!(f.store.next_deadline(), None);
    f.check(&[
        ("BLPOP q -1", "!ERR timeout is negative"),
        ("BLPOP q x", "!ERR timeout is not a float or out of range"),
    ]);
}

#[test]
fn elements_travel_through_lists_that_others_wait_for() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLMOVE a b RIGHT LEFT 0"), Outcome::Blocked);
    assert_eq!(f.outcome(3, "BLPOP b 0"), Outcome::Blocked);
    f.run("LPUSH a x");
    assert_eq!(f.messages(), [(2, "\"x\"".into()), (3, "[\"b\" \"x\"]".into())]);
    assert_eq!(f.run("EXISTS a b"), Reply::Integer(0));
}

#[test]
fn a_client_that_left_gets_nothing() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLPOP q 0"), Outcome::Blocked);
    f.store.disconnect(f.now, ClientId(2), Ending::Unanswered);
    f.run("RPUSH q a");
    assert_eq!(f.messages(), []);
    assert_eq!(f.run("LLEN q"), Reply::Integer(1));
}

#[test]
fn a_list_that_is_renamed_wakes_clients() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLPOP q 0"), Outcome::Blocked);
    f.run("RPUSH other a b");
    f.run("RENAME other q");
    assert_eq!(f.messages(), [(2, "[\"q\" \"a\"]".into())]);
    // A value of another kind wakes no client.
    assert_eq!(f.outcome(3, "BLPOP p 0"), Outcome::Blocked);
    f.run("SET p 1");
    assert_eq!(f.messages(), []);
}

#[test]
fn a_client_can_end_the_wait_of_another() {
    let mut f = Fixture::new();
    assert_eq!(f.outcome(2, "BLPOP q 0"), Outcome::Blocked);
    assert_eq!(f.run("CLIENT UNBLOCK 2 ERROR"), Reply::Integer(1));
    assert_eq!(f.messages(), [(2, "!UNBLOCKED client unblocked via CLIENT UNBLOCK".into())]);
}
