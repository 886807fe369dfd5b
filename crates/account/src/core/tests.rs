use super::*;
use phalanx_types::RunId;

const NONE: Needs = Needs { cores: 0, memory: ByteSize(0) };

fn needs(cores: u32, memory: u64) -> Needs {
    Needs { cores, memory: ByteSize(memory) }
}

fn run(number: u64) -> Holder {
    Holder::Run { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn waiting(number: u64) -> Holder {
    Holder::WaitingRun { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn account() -> Account {
    Account::new(needs(2, 10))
}

#[test]
fn two_claims_share_a_node_and_a_third_is_told_who_has_it() {
    let mut account = account();
    let first = account.try_claim(run(1), needs(1, 4)).unwrap();
    account.try_claim(run(2), needs(1, 4)).unwrap();
    let shortage = account.try_claim(run(3), needs(1, 0)).unwrap_err();
    assert_eq!(shortage.free(), needs(0, 2));
    assert!(!shortage.is_permanent());
    assert_eq!(
        shortage.to_string(),
        "needs 1 core, 0 of 2 are free (run of main-4f2a uses 1, run of main-4f2a uses 1)"
    );
    account.release(first);
    account.release(first);
    assert_eq!(account.free(), needs(1, 6));
    account.try_claim(run(3), needs(1, 0)).unwrap();
    account.check_invariants();
}

#[test]
fn what_is_larger_than_the_node_never_fits() {
    let shortage = account().try_claim(run(1), needs(3, 0)).unwrap_err();
    assert!(shortage.is_permanent());
    assert_eq!(shortage.to_string(), "needs 3 cores, the node has 2");
}

#[test]
fn jobs_have_what_no_run_claims() {
    let mut account = account();
    account.set_jobs(2, needs(2, 0)).unwrap();
    let shortage = account.try_claim(run(1), needs(1, 0)).unwrap_err();
    assert_eq!(shortage.to_string(), "needs 1 core, 0 of 2 are free (2 jobs use 2)");
    account.set_jobs(1, needs(1, 0)).unwrap();
    account.try_claim(run(1), needs(1, 0)).unwrap();
    assert_eq!(account.jobs_share(), needs(1, 10));
    let refused = account.set_jobs(2, needs(2, 0)).unwrap_err();
    assert_eq!(refused.to_string(), "needs 2 cores, 1 of 2 is free (run of main-4f2a uses 1)");
    assert_eq!(account.jobs(), needs(1, 0));
    account.check_invariants();
}

#[test]
fn jobs_make_room_for_a_run_that_waits_for_them_but_not_for_one_that_waits_for_runs() {
    let mut account = account();
    account.set_jobs(1, needs(1, 0)).unwrap();
    let whole = account.wait_for(waiting(1), needs(2, 0));
    assert_eq!(account.jobs_share(), needs(0, 10), "no new jobs");
    // A second one that waits for the same cores changes nothing.
    let other = account.wait_for(waiting(2), needs(1, 0));
    assert_eq!(account.taken().len(), 1);
    account.set_jobs(0, NONE).unwrap();
    account.claim_in_turn(whole, run(1), needs(2, 0)).unwrap();
    assert_eq!(account.taken().len(), 1, "the other waits for the run, not for jobs");
    account.give_up(other);
    assert!(!account.is_awaited());
}

#[test]
fn a_claim_that_fits_waits_behind_an_earlier_one_that_does_not_and_is_told_so() {
    let mut account = account();
    let running = account.try_claim(run(1), needs(1, 0)).unwrap();
    let large = account.wait_for(waiting(2), needs(2, 0));
    let shortage = account.try_claim(run(3), needs(1, 0)).unwrap_err();
    let before = "run of main-4f2a uses 1, waiting run of main-4f2a is next for 2";
    assert_eq!(shortage.to_string(), format!("needs 1 core, 0 of 2 are free ({before})"));
    let small = account.wait_for(waiting(3), needs(1, 0));
    assert_eq!(account.claim_in_turn(small, run(3), needs(1, 0)), Err(shortage));
    assert_eq!(account.jobs_share(), needs(1, 10), "jobs may use what no run can have yet");
    account.release(running);
    account.claim_in_turn(small, run(3), needs(1, 0)).unwrap_err();
    let large = account.claim_in_turn(large, run(2), needs(2, 0)).unwrap();
    account.release(large);
    account.claim_in_turn(small, run(3), needs(1, 0)).unwrap();
    assert!(!account.is_awaited());
    account.check_invariants();
}

#[test]
fn a_claim_passes_an_earlier_one_that_lacks_what_it_does_not_need() {
    let mut account = account();
    account.try_claim(run(1), needs(0, 8)).unwrap();
    account.wait_for(waiting(2), needs(1, 4));
    account.try_claim(run(3), needs(1, 1)).unwrap_err();
    account.try_claim(run(3), needs(1, 0)).unwrap();
    account.try_claim(run(4), needs(1, 0)).unwrap_err();
}

#[test]
fn a_wait_that_has_ended_has_lost_its_turn() {
    let mut account = account();
    account.try_claim(run(1), needs(2, 0)).unwrap();
    let first = account.wait_for(waiting(2), needs(1, 0));
    account.wait_for(waiting(3), needs(2, 0));
    assert!(account.give_up(first) && !account.give_up(first));
    let shortage = account.claim_in_turn(first, run(2), needs(1, 0)).unwrap_err();
    assert_eq!(shortage.uses.len(), 2, "the other is before it now");
}

#[test]
fn the_version_grows_when_and_only_when_something_is_taken_or_given_back() {
    let mut account = account();
    let mut before = account.version();
    let mut grew = |account: &Account| std::mem::replace(&mut before, account.version()) < account.version();
    account.set_jobs(1, needs(1, 0)).unwrap();
    assert!(!grew(&account));
    let claim = account.try_claim(run(1), needs(1, 0)).unwrap();
    assert!(grew(&account));
    account.try_claim(run(2), needs(1, 0)).unwrap_err();
    assert!(!grew(&account));
    let wait = account.wait_for(waiting(2), needs(1, 0));
    assert!(grew(&account));
    account.give_up(wait);
    assert!(grew(&account));
    account.release(claim);
    assert!(grew(&account));
    account.release(claim);
    assert!(!grew(&account));
}
