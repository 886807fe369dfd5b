//! Why a producer or a trainer waits, as data; every front prints the same words for it.

use phalanx_types::{ByteSize, ProducerId, ReaderId, TrainerId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The most names that a reason has.
pub(crate) const NAMES: usize = 4;

/// Why a producer or a trainer waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamWait {
    /// Too few samples have arrived for a pass.
    Samples {
        /// How many have arrived.
        arrived: u64,
        /// How many the pass needs.
        needed: u64,
        /// Who may send more.
        open: Names<ProducerId>,
    },
    /// Too few samples have arrived since the last pass.
    NewSamples {
        /// How many have arrived since.
        arrived: u64,
        /// How many the pass needs.
        needed: u64,
        /// Who may send more.
        open: Names<ProducerId>,
    },
    /// The pass needs the whole stream, which has not ended.
    EndOfStream {
        /// How many samples have arrived.
        arrived: u64,
        /// How many producers have closed.
        closed: u32,
        /// How many will close, if that is known.
        expected: Option<u32>,
        /// Who has not closed.
        open: Names<ProducerId>,
    },
    /// The pass needs more samples, and all producers that could send them are lost.
    ProducerLost {
        /// The producer that was lost last.
        producer: ProducerId,
        /// How long ago.
        lost_for: Duration,
        /// How many others are lost.
        others: u32,
    },
    /// The budget is full of samples that a reader has not used.
    Budget {
        /// The bytes of samples and of uploads on their way.
        used: ByteSize,
        /// The bytes there may be.
        budget: ByteSize,
        /// The reader that has used least, and how many samples it has not used.
        behind: Option<(ReaderId, u64)>,
        /// A trainer that keeps that reader from going on.
        trainer: Option<TrainerId>,
    },
    /// The budget is full and the reader that needs the samples has no trainers.
    ReaderAway {
        /// The bytes of samples and of uploads on their way.
        used: ByteSize,
        /// The bytes there may be.
        budget: ByteSize,
        /// The reader.
        reader: ReaderId,
        /// How long it has had no trainers.
        away_for: Duration,
    },
    /// The budget is full and there is no reader.
    NoReader {
        /// The bytes of samples and of uploads on their way.
        used: ByteSize,
        /// The bytes there may be.
        budget: ByteSize,
    },
    /// The trainer has done its share of a step, others have not.
    OtherTrainers {
        /// The pass.
        pass: u64,
        /// The step.
        step: u64,
        /// Who has not done it.
        busy: Names<TrainerId>,
    },
    /// Samples of steps that the run has not committed take the room that new samples need, or the next pass needs
    /// the end of this one.
    Uncommitted {
        /// The pass.
        pass: u64,
        /// How many steps of it are committed.
        step: u64,
    },
    /// The next dataset of the stream's list is not all there.
    DatasetIncomplete {
        /// What its keys begin with.
        dataset: String,
    },
    /// Another node of the store has the next dataset of the stream's list, and cannot be asked.
    DatasetNode {
        /// What its keys begin with.
        dataset: String,
        /// The part of the store that has it, as `2/3`.
        part: String,
        /// Why that cannot be asked.
        detail: String,
    },
    /// The trainer has joined and takes its share from the next step on.
    NextStep {
        /// The pass.
        pass: u64,
        /// The step that goes on without it.
        step: u64,
    },
}

impl StreamWait {
    /// A word for the kind of reason, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            StreamWait::Samples { .. } => "samples",
            StreamWait::NewSamples { .. } => "new_samples",
            StreamWait::EndOfStream { .. } => "end_of_stream",
            StreamWait::ProducerLost { .. } => "producer_lost",
            StreamWait::Budget { .. } => "budget",
            StreamWait::ReaderAway { .. } => "reader_away",
            StreamWait::NoReader { .. } => "no_reader",
            StreamWait::OtherTrainers { .. } => "other_trainers",
            StreamWait::Uncommitted { .. } => "uncommitted",
            StreamWait::DatasetIncomplete { .. } => "dataset_incomplete",
            StreamWait::DatasetNode { .. } => "dataset_node",
            StreamWait::NextStep { .. } => "next_step",
        }
    }

    /// Whether it ends when more samples arrive.
    pub fn is_for_samples(&self) -> bool {
        matches!(
            self,
            StreamWait::Samples { .. } | StreamWait::NewSamples { .. } | StreamWait::EndOfStream { .. }
        )
    }

    /// Whether only numbers differ, which is not worth a message.
    pub fn same_kind(&self, other: &StreamWait) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The first few of many names, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names<N> {
    /// The first few.
    pub first: Vec<N>,
    /// How many there are.
    pub count: u32,
}

impl<N> FromIterator<N> for Names<N> {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        let mut all = Self { first: Vec::new(), count: 0 };
        for name in names {
            all.count = all.count.saturating_add(1);
            if all.first.len() < NAMES {
                all.first.push(name);
            }
        }
        all
    }
}

impl<N: fmt::Display> Names<N> {
    /// `2 producers are open (sim-1, sim-2)`.
    fn counted(&self, f: &mut fmt::Formatter<'_>, noun: &str, state: &str) -> fmt::Result {
        match self.count {
            0 => return write!(f, "no {noun} is {state}"),
            1 => write!(f, "1 {noun} is {state} (")?,
            count => write!(f, "{} {noun}s are {state} (", Grouped(u64::from(count)))?,
        }
        for (i, name) in self.first.iter().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.count as usize > self.first.len() { ", …)" } else { ")" })
    }
}

/// A number with commas between thousands.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A duration in whole seconds, or less if it is shorter.
fn ago(duration: Duration) -> humantime::FormattedDuration {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(match millis {
        0..1000 => Duration::from_millis(millis),
        _ => Duration::from_secs(millis / 1000),
    })
}

impl fmt::Display for StreamWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("waiting: ")?;
        match self {
            StreamWait::Samples { arrived, needed, open } => {
                write!(f, "{} of {} samples have arrived, ", Grouped(*arrived), Grouped(*needed))?;
                open.counted(f, "producer", "open")
            }
            StreamWait::NewSamples { arrived, needed, open } => {
                write!(f, "{} of {} new samples have arrived, ", Grouped(*arrived), Grouped(*needed))?;
                open.counted(f, "producer", "open")
            }
            StreamWait::EndOfStream { arrived, closed, expected, open } => {
                write!(f, "the stream has not ended, {} samples have arrived, ", Grouped(*arrived))?;
                match expected {
                    Some(expected) => write!(f, "{closed} of {expected} producers have closed, ")?,
                    None => f.write_str("it is not sealed, ")?,
                }
                open.counted(f, "producer", "open")
            }
            StreamWait::ProducerLost { producer, lost_for, others } => {
                write!(f, "producer {producer} was lost {} ago and has not closed", ago(*lost_for))?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str(", nor has 1 other"),
                    others => write!(f, ", nor have {others} others"),
                }
            }
            StreamWait::Budget { used, budget, behind, trainer } => {
                write!(f, "{used} of {budget} hold samples not yet used")?;
                if let Some((reader, samples)) = behind {
                    write!(f, "; reader {reader} has {} samples to go", Grouped(*samples))?;
                }
                trainer.as_ref().map_or(Ok(()), |trainer| write!(f, ", trainer {trainer} is last"))
            }
            StreamWait::ReaderAway { used, budget, reader, away_for } => write!(
                f,
                "{used} of {budget} hold samples for reader {reader}, which has had no trainers for {}",
                ago(*away_for)
            ),
            StreamWait::NoReader { used, budget } => {
                write!(f, "{used} of {budget} hold samples not yet used, and there is no reader")
            }
            StreamWait::OtherTrainers { pass, step, busy } => {
                write!(f, "step {step} of pass {pass} is not done, ")?;
                busy.counted(f, "trainer", "busy")
            }
            StreamWait::Uncommitted { pass, step } => {
                write!(
                    f,
                    "steps of pass {pass} from step {step} on are not committed, their samples cannot be freed"
                )
            }
            StreamWait::DatasetIncomplete { dataset } => {
                write!(f, "dataset {dataset} of the list is not all there")
            }
            StreamWait::DatasetNode { dataset, part, detail } => {
                write!(f, "part {part} of the store has dataset {dataset} of the list: {detail}")
            }
            StreamWait::NextStep { pass, step } => {
                write!(f, "the group finishes step {step} of pass {pass} first")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producers(names: &[&str]) -> Names<ProducerId> {
        names.iter().map(|name| ProducerId::new(*name).unwrap()).collect()
    }

    #[test]
    fn reasons_read_like_sentences() {
        let reader = ReaderId::new("train-1").unwrap();
        let (used, budget) = (ByteSize::gib(8), ByteSize::gib(8));
        let table = [
            (
                StreamWait::Samples { arrived: 120, needed: 1024, open: producers(&["sim-1", "sim-2"]) },
                "waiting: 120 of 1,024 samples have arrived, 2 producers are open (sim-1, sim-2)",
            ),
            (
                StreamWait::NewSamples {
                    arrived: 0,
                    needed: 10,
                    open: producers(&["a", "b", "c", "d", "e"]),
                },
                "waiting: 0 of 10 new samples have arrived, 5 producers are open (a, b, c, d, …)",
            ),
            (
                StreamWait::EndOfStream { arrived: 7, closed: 1, expected: Some(2), open: producers(&["b"]) },
                "waiting: the stream has not ended, 7 samples have arrived, 1 of 2 producers have closed, \
                 1 producer is open (b)",
            ),
            (
                StreamWait::EndOfStream { arrived: 7, closed: 1, expected: None, open: producers(&[]) },
                "waiting: the stream has not ended, 7 samples have arrived, it is not sealed, no producer is open",
            ),
            (
                StreamWait::ProducerLost {
                    producer: ProducerId::new("sim-2").unwrap(),
                    lost_for: Duration::from_millis(12_345),
                    others: 0,
                },
                "waiting: producer sim-2 was lost 12s ago and has not closed",
            ),
            (
                StreamWait::Budget {
                    used,
                    budget,
                    behind: Some((reader.clone(), 3000)),
                    trainer: TrainerId::new("t2").ok(),
                },
                "waiting: 8 GiB of 8 GiB hold samples not yet used; reader train-1 has 3,000 samples to go, \
                 trainer t2 is last",
            ),
            (
                StreamWait::ReaderAway { used, budget, reader, away_for: Duration::from_secs(90) },
                "waiting: 8 GiB of 8 GiB hold samples for reader train-1, which has had no trainers for 1m 30s",
            ),
            (
                StreamWait::NoReader { used, budget },
                "waiting: 8 GiB of 8 GiB hold samples not yet used, and there is no reader",
            ),
            (
                StreamWait::OtherTrainers {
                    pass: 1,
                    step: 5,
                    busy: TrainerId::new("t1").into_iter().collect(),
                },
                "waiting: step 5 of pass 1 is not done, 1 trainer is busy (t1)",
            ),
            (
                StreamWait::Uncommitted { pass: 2, step: 3 },
                "waiting: steps of pass 2 from step 3 on are not committed, their samples cannot be freed",
            ),
            (
                StreamWait::DatasetIncomplete { dataset: "{d7}".to_owned() },
                "waiting: dataset {d7} of the list is not all there",
            ),
            (
                StreamWait::DatasetNode {
                    dataset: "{d7}".to_owned(),
                    part: "2/3".to_owned(),
                    detail: "no node serves it".to_owned(),
                },
                "waiting: part 2/3 of the store has dataset {d7} of the list: no node serves it",
            ),
            (StreamWait::NextStep { pass: 1, step: 5 }, "waiting: the group finishes step 5 of pass 1 first"),
        ];
        for (reason, text) in table {
            assert_eq!(reason.to_string(), text);
        }
    }
}
