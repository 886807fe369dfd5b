use super::*;
use phalanx_wire::group_end::EndRef;
use phalanx_wire::node::LostReason;

const LIMITS: Limits = Limits { min: 2, wanted: 3, max: 4, patience: Duration::from_secs(10) };

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000)
}

fn node(i: usize) -> NodeId {
    NodeId::new(format!("n{i}")).unwrap()
}

struct Driver {
    core: FormationCore,
    out: Outbox<FormationCommand>,
}

impl Driver {
    fn new(limits: Limits) -> Self {
        Self { core: FormationCore::new(limits), out: Outbox::default() }
    }

    fn said(&mut self) -> Vec<FormationCommand> {
        self.out.drain().collect()
    }

    fn comes(&mut self, i: usize, step: Option<u64>) -> Vec<FormationCommand> {
        self.core.on_node(at(0), node(i), &mut self.out);
        self.core.on_enlisted(at(0), &node(i), step, &mut self.out);
        self.said()
    }

    fn prepared(&mut self, i: usize) -> Vec<FormationCommand> {
        let epoch = self.core.epoch();
        self.core.on_prepared(&node(i), epoch, ends(i), &mut self.out);
        self.said()
    }

    fn left(&mut self, i: usize, left: Left) -> Vec<FormationCommand> {
        let epoch = self.core.epoch();
        self.core.on_left(at(1), &node(i), epoch, left, &mut self.out);
        self.said()
    }

    fn lost(&mut self, i: usize) -> Vec<FormationCommand> {
        self.core.on_lost(at(1), &node(i), killed(i), &mut self.out);
        self.said()
    }

    /// Three nodes that train.
    fn running() -> Self {
        let mut driver = Self::new(LIMITS);
        (0..3).for_each(|i| drop(driver.comes(i, Some(0))));
        (0..3).for_each(|i| drop(driver.prepared(i)));
        assert_eq!(driver.core.phase, Phase::Running { asked: false });
        driver
    }
}

fn gone() -> BreakReason {
    BreakReason::Failed { detail: "rank 2 is gone".into() }
}

fn killed(i: usize) -> BreakReason {
    BreakReason::NodeLost { node: node(i), loss: LostReason::LinkBroken { detail: "killed".into() } }
}

/// How the others reach a rank.
fn ends(i: usize) -> RankEnds {
    RankEnds { control: EndRef { host: [i as u8; 16], segment: None }, rings: Vec::new() }
}

fn broken(step: u64) -> Left {
    Left::Broken { step, reason: gone() }
}

fn prepare(epoch: u64, members: &[usize]) -> FormationCommand {
    FormationCommand::Prepare { epoch: Epoch(epoch), members: members.iter().map(|i| node(*i)).collect() }
}

fn seat(i: usize, step: Option<u64>) -> Seat {
    Seat { node: node(i), ends: ends(i), step }
}

#[test]
fn a_run_begins_when_all_are_there_and_one_holds_the_state() {
    let mut driver = Driver::new(LIMITS);
    let few = |have, coming| FormationCommand::Paused(Pause::TooFew { have, need: 2, coming });
    let enlist = |i| FormationCommand::Enlist { node: node(i) };
    assert_eq!(driver.comes(0, None), [enlist(0), few(0, 1), few(1, 0)]);
    let gathering = FormationCommand::Paused(Pause::Gathering { have: 2, want: 3, coming: 0 });
    assert_eq!(driver.comes(1, None), [enlist(1), few(1, 1), gathering]);
    let restore = FormationCommand::Restore { node: node(0) };
    assert_eq!(driver.comes(2, None).last(), Some(&restore));
    driver.core.on_restored(at(0), &node(0), 40, &mut driver.out);
    assert_eq!(driver.said(), [prepare(1, &[0, 1, 2])]);
    assert_eq!([driver.prepared(1), driver.prepared(0)], [vec![], vec![]]);
    let seats = vec![seat(0, Some(40)), seat(1, None), seat(2, None)];
    assert_eq!(driver.prepared(2), [FormationCommand::Connect { epoch: Epoch(1), seats }]);
}

#[test]
fn patience_ends_and_the_run_begins_with_those_who_are_there() {
    let mut driver = Driver::new(LIMITS);
    driver.comes(0, Some(0));
    driver.comes(1, Some(0));
    assert_eq!(driver.core.next_tick(), Some(at(10)));
    driver.core.on_tick(at(10), &mut driver.out);
    assert_eq!(driver.said(), [prepare(1, &[0, 1])]);
}

#[test]
fn a_loss_ends_the_group_and_survivors_go_on_from_the_furthest() {
    let mut driver = Driver::running();
    let abort = FormationCommand::Abort { epoch: Epoch(1), reason: killed(2) };
    assert_eq!(driver.lost(2), [abort]);
    assert_eq!(driver.left(0, broken(8)), []);
    assert_eq!(driver.left(1, broken(7)), [prepare(2, &[0, 1])]);
    driver.prepared(0);
    let seats = vec![seat(0, Some(8)), seat(1, Some(7))];
    assert_eq!(driver.prepared(1), [FormationCommand::Connect { epoch: Epoch(2), seats }]);
}

#[test]
fn a_loss_that_a_member_sees_first_ends_the_group_for_all() {
    let mut driver = Driver::running();
    let abort = FormationCommand::Abort { epoch: Epoch(1), reason: gone() };
    assert_eq!(driver.left(0, broken(3)), [abort]);
    assert_eq!(driver.left(1, broken(3)), []);
    assert_eq!(driver.lost(2), [prepare(2, &[0, 1])]);
}

#[test]
fn a_loss_while_a_group_is_prepared_prepares_another() {
    let mut driver = Driver::running();
    driver.lost(2);
    driver.left(0, broken(8));
    driver.left(1, broken(8));
    driver.comes(3, None);
    let abort = FormationCommand::Abort { epoch: Epoch(2), reason: killed(1) };
    assert_eq!(driver.lost(1), [abort, prepare(3, &[0, 3])]);
}

#[test]
fn below_the_minimum_the_run_pauses_and_goes_on_when_nodes_return() {
    let mut driver = Driver::running();
    driver.lost(1);
    driver.lost(2);
    let pause = FormationCommand::Paused(Pause::TooFew { have: 1, need: 2, coming: 0 });
    assert_eq!(driver.left(0, broken(5)), [pause]);
    let said = driver.comes(4, None);
    assert_eq!(said.last(), Some(&prepare(2, &[0, 4])));
}

#[test]
fn when_nobody_is_left_the_state_comes_from_disk() {
    let mut driver = Driver::running();
    (0..3).for_each(|i| drop(driver.lost(i)));
    driver.comes(5, None);
    let said = driver.comes(6, None);
    assert_eq!(said.last(), Some(&FormationCommand::Restore { node: node(5) }));
}

#[test]
fn a_newcomer_is_let_in_at_a_boundary() {
    let mut driver = Driver::running();
    let enlist = FormationCommand::Enlist { node: node(3) };
    assert_eq!(driver.comes(3, None), [enlist, FormationCommand::AskReform { node: node(0) }]);
    assert_eq!(driver.left(2, Left::Reformed { step: 9 }), []);
    assert_eq!(driver.left(0, Left::Reformed { step: 9 }), []);
    assert_eq!(driver.left(1, Left::Reformed { step: 9 }), [prepare(2, &[0, 1, 2, 3])]);
    // A fifth is one too many.
    driver.core.on_node(at(2), node(4), &mut driver.out);
    assert_eq!(driver.said(), []);
}

#[test]
fn a_wish_to_stop_is_passed_on_and_everybody_is_dismissed() {
    let mut driver = Driver::running();
    driver.core.on_stop(at(1), &mut driver.out);
    assert_eq!(driver.said(), [FormationCommand::AskStop { node: node(0) }]);
    driver.left(0, Left::Ended { step: 12 });
    driver.left(1, Left::Ended { step: 12 });
    let dismiss = |i| FormationCommand::Dismiss { node: node(i) };
    let ended = [dismiss(0), dismiss(1), dismiss(2), FormationCommand::Ended];
    assert_eq!(driver.left(2, Left::Ended { step: 12 }), ended);
}

#[test]
fn a_run_whose_last_steps_are_lost_goes_on() {
    let mut driver = Driver::running();
    (0..2).for_each(|i| drop(driver.left(i, Left::Ended { step: 12 })));
    assert_eq!(driver.lost(2).last(), Some(&FormationCommand::Ended));
    assert!(!driver.core.is_stopping());
    driver.core.on_unfinished(at(2), &mut driver.out);
    driver.core.on_unfinished(at(2), &mut driver.out);
    assert_eq!(driver.said(), [FormationCommand::Restore { node: node(0) }]);
}

#[test]
fn a_loss_among_those_who_leave_lets_go_of_the_others() {
    let mut driver = Driver::running();
    driver.left(0, Left::Reformed { step: 9 });
    let said = driver.lost(1);
    let abort = |command: &FormationCommand| matches!(command, FormationCommand::Abort { .. });
    assert!(said.iter().any(abort), "{said:?}");
    assert!(!driver.lost(2).iter().any(abort), "told once");
}

#[test]
fn a_stop_while_a_group_gets_ready_is_asked_for_when_it_begins() {
    let mut driver = Driver::new(LIMITS);
    (0..3).for_each(|i| drop(driver.comes(i, Some(4))));
    driver.core.on_stop(at(1), &mut driver.out);
    assert_eq!(driver.said(), []);
    (0..2).for_each(|i| drop(driver.prepared(i)));
    assert_eq!(driver.prepared(2).last(), Some(&FormationCommand::AskStop { node: node(0) }));
}

#[test]
fn groups_that_break_before_they_do_a_step_are_formed_ever_more_slowly() {
    let mut driver = Driver::running();
    let is_formed = |said: &[FormationCommand]| {
        said.iter().any(|command| matches!(command, FormationCommand::Prepare { .. }))
    };
    let mut formed = Vec::new();
    for _ in 0..3 {
        (0..2).for_each(|i| drop(driver.left(i, broken(0))));
        let said = driver.left(2, broken(0));
        formed.push(is_formed(&said));
        if is_formed(&said) {
            (0..3).for_each(|i| drop(driver.prepared(i)));
        }
    }
    assert_eq!(formed, [true, true, false]);
    let due = driver.core.next_tick().unwrap();
    assert!(due > at(1) && due <= at(2), "{due:?}");
    driver.core.on_tick(due, &mut driver.out);
    assert!(is_formed(&driver.said()));
}

#[test]
fn words_of_an_older_group_are_ignored() {
    let mut driver = Driver::running();
    driver.core.on_left(at(1), &node(0), Epoch(0), broken(1), &mut driver.out);
    driver.core.on_prepared(&node(0), Epoch(0), ends(0), &mut driver.out);
    driver.core.on_lost(at(1), &node(9), killed(9), &mut driver.out);
    assert_eq!(driver.said(), []);
}
