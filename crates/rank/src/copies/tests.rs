use super::*;
use phalanx_graph::Weights;
use phalanx_types::Tensor;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

fn state(step: u64, elements: usize) -> ModelState {
    let tensor = Tensor::from_f32(vec![elements as u64], &vec![step as f32; elements]).unwrap();
    let weights = Weights::from_iter([("w".to_owned(), tensor)]);
    ModelState { optimizer_steps: step, weights, ..ModelState::default() }
}

/// A ward and a guardian, which reads copies with a function of the test.
struct Two {
    guard: Guard,
    own: Copies,
    other: Copies,
}

impl Two {
    fn new(most: u64, take: impl Fn(&mut dyn Read, u64) -> std::io::Result<Bytes> + Send + 'static) -> Self {
        let (a, b) = UnixStream::pair().unwrap();
        let (a, b): (Socket, Socket) = (a.into(), b.into());
        let sockets = vec![a.try_clone().unwrap(), b.try_clone().unwrap()];
        let (own, other) = (Copies::default(), Copies::default());
        let (to_send, waiting) = channel();
        let sent = Arc::new(Sent::default());
        let (flag, keeper) = (sent.clone(), other.clone());
        let threads = vec![
            std::thread::spawn(move || send(&a, &waiting, &flag)),
            std::thread::spawn(move || receive(&b, &keeper, most, &take)),
        ];
        let to_send = Some(to_send);
        let guard = Guard { every: 10, to_send, sent, last: None, whole: 0, sockets, threads };
        Self { guard, own, other }
    }

    /// Makes a copy; returns whether the guardian stored it.
    fn copy(&mut self, step: u64, elements: usize, missed: bool) -> bool {
        let ops = Ops { start: 2, end: 5 };
        self.guard.begin(&self.own, step, missed);
        self.guard.copy(&self.own, step, ops, state(step, elements).to_bytes().unwrap().into());
        while self.guard.is_copying() {
            std::thread::yield_now();
        }
        !self.guard.has_missed()
    }

    /// The steps of the stored copies.
    fn steps(copies: &Copies) -> Vec<u64> {
        copies.holds().iter().map(|hold| hold.step).collect()
    }
}

#[test]
fn copies_large_and_small_arrive_and_old_ones_go() {
    let mut two = Two::new(1 << 30, |from, len| read_exactly(from, len));
    for (step, elements) in [(0, 4), (10, 1 << 20), (20, 4)] {
        let due = |step: u64, next: u64| two.guard.is_due(step, next);
        assert!(due(step, 1) && !due(step.saturating_sub(1), 1) || step == 0);
        // The next chance would come two steps too late.
        assert!(due(step.saturating_sub(8), 10));
        assert!(two.copy(step, elements, false));
        assert_eq!(two.other.of_step(step).unwrap(), [state(step, elements)]);
    }
    assert_eq!(Two::steps(&two.own), [10, 20]);
    two.other.forget_before(20);
    assert_eq!(Two::steps(&two.other), [20]);
    two.own.forget_after(10);
    assert_eq!(Two::steps(&two.own), [10]);
}

#[test]
fn a_copy_that_cannot_be_kept_is_missed_and_the_last_whole_ones_stay() {
    let full = Arc::new(AtomicBool::new(false));
    let disk = full.clone();
    let mut two = Two::new(1 << 30, move |from, len| match disk.load(Ordering::Acquire) {
        // After some of it was written.
        true => Err(from.read_exact(&mut [0; 40]).err().unwrap_or(ErrorKind::StorageFull.into())),
        false => read_exactly(from, len),
    });
    assert!(two.copy(0, 4, false) && two.copy(10, 4, false));
    full.store(true, Ordering::Release);
    assert!(!two.copy(20, 1 << 20, false));
    assert!(!two.copy(30, 4, true));
    assert_eq!(Two::steps(&two.own), [10, 30]);
    full.store(false, Ordering::Release);
    assert!(two.copy(40, 4, true));
    assert_eq!(two.other.of_step(40).unwrap(), [state(40, 4)]);
    assert_eq!(Two::steps(&two.own), [10, 40]);
    assert!(two.copy(50, 4, false));
    assert_eq!(Two::steps(&two.own), [40, 50]);
}

#[test]
fn a_ward_does_not_wait_for_a_guardian_that_has_stopped_reading() {
    let mut two = Two::new(1 << 10, |from, len| read_exactly(from, len));
    assert!(two.copy(0, 4, false));
    // More than such a stage can have.
    assert!(!two.copy(10, 1 << 20, false));
    assert!(!two.copy(20, 4, true));
    assert_eq!(Two::steps(&two.own), [0, 20]);
    assert_eq!(Two::steps(&two.other), [0]);
}
