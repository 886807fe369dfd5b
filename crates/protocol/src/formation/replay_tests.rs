//! Random events into a recorded core: its replay decides the same.

use super::*;
use phalanx_recording::{Comparison, Limits as RecordingLimits, Player, Recorded, read};
use phalanx_types::Seed;

/// Draws numbers from a seed, one after the other.
struct Draw(Seed);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.derive("next");
        self.0.0 % bound
    }

    fn node(&mut self) -> NodeId {
        NodeId::new(format!("n{}", self.below(4))).unwrap()
    }

    fn event(&mut self, core: &FormationCore) -> FormationEvent {
        let (node, epoch) = (self.node(), core.epoch());
        match self.below(16) {
            0..=2 => FormationEvent::NodeFound { node },
            3..=5 => FormationEvent::Enlisted { node, step: (self.below(3) == 0).then_some(7) },
            6 | 7 => FormationEvent::Restored { node, step: self.below(9) },
            8 | 9 => FormationEvent::Prepared { node, epoch, end: vec![1, 2, 3] },
            10 => {
                let (step, reason) = (self.below(9), "broken".to_owned());
                let left = match self.below(8) {
                    0..=3 => Left::Broken { step, reason },
                    4..=5 => Left::Reformed { step },
                    6 => Left::Ended { step },
                    _ => Left::Empty { reason: Some(reason) },
                };
                FormationEvent::Left { node, epoch, left }
            }
            11 => FormationEvent::NodeLost { node, reason: "killed".to_owned() },
            12 if self.below(3) == 0 => FormationEvent::Mustered { plan: Err("too few".to_owned()) },
            12 => FormationEvent::Mustered { plan: Ok(core.ready()) },
            13 if self.below(20) == 0 => FormationEvent::StopAsked,
            13 => FormationEvent::Unfinished,
            14 => [FormationEvent::MusterRepeated, FormationEvent::WeighRepeated, FormationEvent::FoundWorth]
                [self.below(3) as usize]
                .clone(),
            _ => FormationEvent::Ticked,
        }
    }
}

#[test]
fn a_replay_of_random_events_decides_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut connected = 0;
    for seed in 0..60 {
        let path = dir.path().join(format!("{seed}.recording"));
        let limits = Limits { min: 1, wanted: 2, max: 4, patience: Duration::from_millis(50) };
        let setup = FormationSetup { limits, planned: seed % 2 == 1 };
        let mut core = Recorded::<FormationCore>::begin(setup, &path, RecordingLimits::default()).unwrap();
        let (mut draw, mut out, mut said, mut now) =
            (Draw(Seed(seed)), Outbox::default(), Vec::new(), Time(0));
        for _ in 0..200 {
            now += Duration::from_micros(draw.below(30_000));
            let event = draw.event(&core);
            core.feed(now, event, &mut out);
            said.extend(out.drain().map(|command| command.to_string()));
        }
        drop(core);
        let recording = read(&path).unwrap();
        let mut player = Player::<FormationCore>::new(recording.sections().next().unwrap()).unwrap();
        let mut again = Vec::new();
        while let Some(pending) = player.next_event().unwrap() {
            let step = player.apply(pending).unwrap();
            assert_eq!(step.comparison, Comparison::Same, "seed {seed}, entry {}", step.entry);
            again.extend(step.commands.iter().map(ToString::to_string));
        }
        assert_eq!(again, said, "seed {seed}");
        connected += said.iter().filter(|text| text.starts_with("connect group")).count();
    }
    assert!(connected > 30, "groups were formed: {connected}");
}
