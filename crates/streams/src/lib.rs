//! Samples that arrive while models train: which of them count, who uses which when, and why anyone waits.
//!
//! Producers (simulations) append uploads of samples to a stream in a store; readers (training runs) use them. This
//! crate decides, without clock, thread or socket; the store is the shell that keeps the bytes, the connections and
//! the journal.
//!
//! ```text
//!  producer                        store: shell | StreamCore                          trainers of a reader
//!  ProducerOpened ----------------------------> |                 <---------------------- ReaderOpened
//!    <---------------- Opened { next } -------- |                 <---------------------- TrainerJoined
//!  UploadBegun -------------------------------> |  budget         -- Wait(120 of 1,024 …) ------------>
//!    <--- Wait(reason) … Admitted ------------- |
//!  bytes ----> stored                           |
//!    UploadCompleted -------------------------> |  Record(UploadAccepted)
//!    <---------------- Acknowledged ----------- |  Record(PassSealed)
//!                                               |                 -- Assigned { cursor, rank } ------->
//!                                               |                 <---------------------- StepsDone
//!                                               |  Record(StepsCommitted)
//!                                FreeUpload <-- |                 -- Assigned { next step } ---------->
//!  ProducerClosed ----------------------------> |  Record(StreamEnded)            -- Finished -------->
//! ```
//!
//! What it promises:
//! - An upload counts once, however often it is repeated, in whichever life of its producer. A half-written one does
//!   not count.
//! - A *pass* has the samples below its sealed *horizon*; each is used exactly once, however trainers come and go:
//!   a step is committed when every trainer of the group has done its share, and begins again if the group changes.
//! - The order of a pass is a function of (seed, pass, horizon), so global batches are the same for any number of
//!   trainers, and a [`Cursor`] is enough to resume in the middle of a pass.
//! - With [`Retention::Free`], samples take no more bytes than the budget, and none is freed that a reader needs.
//! - Every client that waits was told a [`StreamWait`], and is told when the wait is over.
//!
//! How a shell drives it: make a [`StreamState`] (new, or a snapshot to which the facts of the journal since are
//! [applied](StreamState::apply)), make a [`StreamCore`] of it, feed [`StreamEvent`]s with the time, and carry out the
//! [`StreamCommand`]s in order. After [`StreamCommand::Record`] nothing may be carried out before the fact is durable;
//! commands that follow in the outbox of later events wait, too. So what a client was told is never forgotten, and
//! what is forgotten, the client repeats. Feed [`StreamEvent::Ticked`] at [`StreamCore::next_tick`].
//!
//! ```
//! use phalanx_streams::{
//!     ProducerLife, StreamCommand, StreamCore, StreamEvent, StreamOutbox, StreamSettings, StreamState, ToProducer,
//! };
//! use phalanx_types::{Incarnation, ProducerId, Time};
//!
//! let mut out = StreamOutbox::default();
//! let mut journal = Vec::new();
//! let mut core = StreamCore::new(Time::ZERO, StreamState::new(StreamSettings::default()), &mut out);
//! let producer = ProducerLife { id: ProducerId::new("sim-1")?, incarnation: Incarnation(1) };
//! core.on_event(Time::ZERO, StreamEvent::ProducerOpened { producer }, &mut out);
//! for command in out.drain() {
//!     match command {
//!         StreamCommand::Record(fact) => journal.push(fact),
//!         StreamCommand::TellProducer { message, .. } => {
//!             assert_eq!(message, ToProducer::Opened { next: 0, closed: false });
//!         }
//!         command => panic!("not expected: {command:?}"),
//!     }
//! }
//! // After a restart the journal leads to the same state.
//! let mut state = StreamState::new(StreamSettings::default());
//! journal.iter().try_for_each(|fact| state.apply(fact))?;
//! assert_eq!(state, *core.state());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A trainer reads the samples of its share through [`StreamCore::places`]; in all modes but `reservoir` it can find
//! them itself by [`Cursor::pass`].

pub mod bugs;
mod command;
mod core;
mod cursor;
mod event;
mod fact;
mod info;
mod permutation;
mod refusal;
mod reservoir;
mod settings;
mod state;
mod wait;

pub use command::{Assignment, StreamCommand, StreamReport, ToProducer, ToReader, ToTrainer};
pub use core::{
    ClientWait, PassAnswer, ProducerOverview, ProducerPresence, ReaderOverview, StreamCore, StreamOutbox,
    StreamOverview, TrainerOverview, WaitingClient,
};
pub use cursor::{Cursor, PassOrder};
pub use event::{ProducerLife, ReaderLife, StreamEvent, TrainerLife};
pub use fact::{Fact, ReaderEnding};
pub use info::{StreamField, StreamInfo};
pub use permutation::Permutation;
pub use refusal::{Quantity, SettingsError, StreamRefusal};
pub use reservoir::Reservoir;
pub use settings::{
    MAX_BATCH, MAX_PRODUCERS, MAX_READERS, MAX_RESERVOIR, MAX_TRAINERS, PartialBatch, ReadMode,
    ReaderSettings, Retention, StreamSettings,
};
pub use state::{FactError, ProducerState, ReaderState, SamplePlace, StreamState, Upload, Uploads};
pub use wait::{Names, StreamWait};
