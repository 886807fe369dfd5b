use super::*;

#[test]
fn an_append_whose_reply_was_not_seen_counts_once() {
    let mut f = Fixture::new();
    assert_eq!(f.run_as(2, "RPUSH l {a}"), Reply::Integer(1));
    // Another client appends in between.
    assert_eq!(f.run_as(4, "RPUSH l {b}"), Reply::Integer(2));
    f.store.disconnect(f.now, ClientId(2), Ending::Unanswered);
    f.later(1000);
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(2));
    assert_eq!(f.out.changes, []);
    // Once repeated is enough: the next is meant.
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(3));
}

#[test]
fn a_repeat_that_is_not_answered_either_may_be_repeated() {
    let mut f = Fixture::new();
    f.run_as(2, "RPUSH l {a}");
    f.store.disconnect(f.now, ClientId(2), Ending::Unanswered);
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(1));
    f.store.disconnect(f.now, ClientId(3), Ending::Unanswered);
    assert_eq!(f.run_as(4, "RPUSH l {a}"), Reply::Integer(1));
}

#[test]
fn a_command_of_a_client_that_has_left_may_be_repeated_at_once() {
    let mut f = Fixture::new();
    f.store.leave(ClientId(2));
    assert_eq!(f.run_as(2, "RPUSH l {a}"), Reply::Integer(1));
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(1));
    f.store.disconnect(f.now, ClientId(2), Ending::Unanswered);
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(2));
}

#[test]
fn equal_appends_that_were_answered_all_count() {
    let mut f = Fixture::new();
    f.run_as(2, "RPUSH l {a}");
    f.store.disconnect(f.now, ClientId(2), Ending::Answered);
    assert_eq!(f.run_as(3, "RPUSH l {a}"), Reply::Integer(2));
    // A client that did something else afterwards has seen the reply.
    f.run_as(4, "RPUSH m x");
    f.run_as(4, "PING");
    f.store.disconnect(f.now, ClientId(4), Ending::Unanswered);
    assert_eq!(f.run_as(3, "RPUSH m x"), Reply::Integer(2));
}

#[test]
fn what_is_not_in_the_list_any_more_or_long_ago_is_appended() {
    let mut f = Fixture::new();
    f.run_as(2, "RPUSH l {a} {b}");
    f.run_as(3, "RPUSH m {a}");
    f.store.disconnect(f.now, ClientId(2), Ending::Unanswered);
    f.store.disconnect(f.now, ClientId(3), Ending::Unanswered);
    f.run("LPOP l");
    assert_eq!(f.run("RPUSH l {a} {b}"), Reply::Integer(3));
    f.later(121_000);
    assert_eq!(f.run("RPUSH m {a}"), Reply::Integer(2));
}
