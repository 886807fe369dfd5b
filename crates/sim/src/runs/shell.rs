//! A model of the driver's shell: it carries out what the real core decides.

use super::cluster::Process;
use super::event::Event;
use super::group::{Group, Standing};
use super::pace::Pace;
use super::reasons;
use super::world::World;
use phalanx_protocol::driver::{DriverCommand, DriverEvent, GroupStart, Notice, Ticket};
use phalanx_protocol::layout;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::train::{DataRef, Enlist, Get, Ops, ShareAsk, Source, Start, StateRef, ToReplica};
use std::time::Duration;

/// A state on its way to the driver.
#[derive(Debug, Clone)]
pub(super) enum Fetch {
    Blob {
        ticket: Ticket,
        blob: BlobId,
    },
    Part {
        ticket: Ticket,
        epoch: Epoch,
        ops: Ops,
        tries: u32,
    },
    /// Outputs for a client.
    Answer,
}

/// How often a part is waited for that a node has not been told to give yet.
const TRIES: u32 = 100;

impl<P: Pace> World<'_, P> {
    pub(super) fn execute(&mut self, command: DriverCommand) -> Option<DriverEvent> {
        let run = self.run_id();
        match command {
            DriverCommand::Enlist { node } => {
                let data = DataRef::default();
                let enlist = Enlist {
                    config: String::new(),
                    files: Vec::new(),
                    trace: false,
                    data,
                    share: ShareAsk::default(),
                };
                self.tell(&node, ToReplica::Enlist { run, enlist });
            }
            DriverCommand::Send { node, message } => self.tell(&node, message),
            DriverCommand::Restore { node } => {
                let step = self.book.newest();
                let state = (step > 0).then_some(StateRef { step, bytes: 1, blob: BlobId(0) });
                self.tell(&node, ToReplica::Restore { run, state });
            }
            DriverCommand::Prepare { epoch, members, layout } => {
                let ranks = members.len() as u32;
                for (rank, node) in (0u32..).zip(&members) {
                    let layout = layout.clone();
                    self.tell(node, ToReplica::Prepare { run, epoch, rank, ranks, layout });
                }
            }
            DriverCommand::Begin(start) => self.begin(start),
            DriverCommand::Abort { epoch, nodes, reason } => {
                for node in nodes {
                    self.tell(&node, reasons::abort(run, epoch, &reason));
                }
            }
            DriverCommand::Measure { nodes } => {
                let nodes = nodes.into_iter().map(|asked| asked.node).collect();
                self.reply_later(DriverEvent::Measured { nodes }, 3000);
            }
            DriverCommand::Plan(request) => self.plan(&request),
            DriverCommand::Compare(request) => self.compare(&request),
            DriverCommand::Calibrate { ticket, .. } => {
                let changed = self.dice.planner.chance(1, 2);
                self.reply_later(DriverEvent::Calibrated { ticket, changed }, 50);
            }
            DriverCommand::Fetch { ticket, node, state } => {
                self.fetch(&node, Fetch::Blob { ticket, blob: state.blob });
            }
            DriverCommand::FetchPart { ticket, node, epoch, ops } => {
                self.fetch(&node, Fetch::Part { ticket, epoch, ops, tries: 0 });
            }
            DriverCommand::Discard { ticket } => {
                if self.book.fetched.remove(&ticket).is_none() {
                    self.violate(format!("{ticket:?} is let go, and was not there"));
                }
            }
            DriverCommand::Rewind => {
                self.tally.rewinds += 1;
                self.owed.clear();
                let (step, validated) = self.book.reopen();
                self.freed = self.freed.max(step);
                return Some(DriverEvent::Rewound { place: self.place_on_disk(step), validated });
            }
            DriverCommand::ForwardQuery { query, node, epoch } => {
                return self.forward_query(query, &node, epoch);
            }
            DriverCommand::FetchAnswer { query, node, .. } => self.fetch_answer(query, &node),
            DriverCommand::RefuseQuery { query, .. } => self.refuse_query(query),
            command => self.write(command),
        }
        None
    }

    /// Commands that write to the run directory, or tell the user.
    fn write(&mut self, command: DriverCommand) {
        let operators = self.options.operators;
        let written = match command {
            DriverCommand::RecordStep(report) => {
                self.trace.mix(report.step);
                self.check_place(report.step);
                let seen = self.marks_of(report.step - 1, 0..self.options.batch);
                self.book.on_step(&report, seen, self.options.batch)
            }
            DriverCommand::RecordValidation { step, .. } => {
                self.trace.mix(step | 1 << 40);
                self.book.on_valid(step)
            }
            DriverCommand::Draft { step } => self.book.on_draft(step),
            DriverCommand::DropDraft { step } => self.book.drop_draft(step),
            DriverCommand::Save { step, states } => {
                self.trace.mix(step | 1 << 41);
                let saved = self.book.on_save(step, &states, operators);
                self.commit_to_store(step);
                saved
            }
            DriverCommand::SaveEarlier { step, states } => {
                self.owed.retain(|(_, of), _| *of > step);
                let saved = self.book.on_save_earlier(step, &states, operators);
                self.commit_to_store(step);
                saved
            }
            DriverCommand::CommitStream { step } => {
                self.commit_to_store(step);
                Ok(())
            }
            DriverCommand::CutRecords { after } => {
                self.book.cut_after(after);
                Ok(())
            }
            DriverCommand::Tell(notice) => self.check_notice(&notice),
            DriverCommand::Finish { step, end, states } => self.finish(step, end, &states),
            DriverCommand::Fail(failure) => self.fail(&failure),
            _ => Ok(()),
        };
        if let Err(what) = written {
            self.violate(what);
        }
    }

    fn check_notice(&mut self, notice: &Notice) -> Result<(), String> {
        match notice {
            Notice::StepsUnknown { from, to } => {
                let mut steps = *from..=*to;
                let known = steps.clone().find_map(|step| Some((step, self.knows_step(step)?)));
                // Nobody can say either how these steps were validated.
                let lost = steps.clone().filter(|step| self.knows_validation(*step).is_none());
                self.book.unknown_validations.extend(lost.collect::<Vec<u64>>());
                self.book.skip_to(*to);
                self.book.unknown_steps.extend(&mut steps);
                known.map_or(Ok(()), |(step, process)| {
                    Err(format!("step {step} is given up, and n{} knows it", process.node))
                })
            }
            Notice::ValidationUnknown { step } => {
                self.book.unknown_validations.insert(*step);
                self.knows_validation(*step).map_or(Ok(()), |process| {
                    Err(format!("the validation of step {step} is given up, and n{} knows it", process.node))
                })
            }
            _ => Ok(()),
        }
    }

    fn reply_later(&mut self, event: DriverEvent, most_ms: u64) {
        let at = self.now + self.dice.planner.millis(1..most_ms);
        self.schedule(at, Event::ToDriver(Box::new(event)));
    }

    pub(super) fn fetch(&mut self, node: &NodeId, fetch: Fetch) {
        let process = self.linked.get(node).copied();
        let at = self.now + self.pace.transfer();
        self.schedule(at, Event::FetchEnds { process, fetch });
    }

    pub(super) fn on_fetch_ends(&mut self, process: Option<Process>, fetch: Fetch) {
        if self.now < self.driver.slow_until {
            return self.schedule(self.driver.slow_until, Event::FetchEnds { process, fetch });
        }
        let rank =
            process.filter(|process| self.lives(*process)).map(|process| &self.nodes[process.node].rank);
        let (ticket, found) = match fetch {
            Fetch::Answer => return self.on_answer(process),
            Fetch::Blob { ticket, blob } => {
                let state = rank.and_then(|rank| rank.untaken.get(&blob)).copied();
                if let (Some((epoch, _, step)), Some(process)) = (state, process)
                    && let Some(missing) = self.owed.get_mut(&(epoch, step))
                {
                    missing.remove(&process);
                }
                (ticket, state.map(|(_, ops, step)| (ops, step)))
            }
            Fetch::Part { ticket, epoch, ops, tries } => {
                let driver = NodeId::new("driver").expect("letters make a name");
                let step = rank.and_then(|rank| rank.gives.get(&(epoch, driver, ops))).copied();
                if rank.is_some() && step.is_none() && tries < TRIES {
                    let fetch = Fetch::Part { ticket, epoch, ops, tries: tries + 1 };
                    let at = self.now + Duration::from_millis(100);
                    return self.schedule(at, Event::FetchEnds { process, fetch });
                }
                (ticket, step.map(|step| (ops, step)))
            }
        };
        let result = found.map(|(_, step)| step).ok_or_else(reasons::not_fetched);
        self.book.fetched.extend(found.map(|found| (ticket, found)));
        self.drive(DriverEvent::Fetched { ticket, result });
    }

    fn begin(&mut self, start: GroupStart) {
        let GroupStart { epoch, seats, recorded, from_step, stages, pass } = start;
        self.check_pass(pass, from_step);
        self.tally.groups += 1;
        self.tally.futile += 1;
        self.owed.retain(|(_, step), _| *step <= from_step);
        let members: Vec<Option<Process>> =
            seats.iter().map(|seat| self.linked.get(&seat.node).copied()).collect();
        let Some(members) = members.into_iter().collect::<Option<Vec<Process>>>() else {
            return self.violate(format!("group {} has a member that is gone", epoch.0));
        };
        let nodes: Vec<_> = seats.iter().map(|seat| seat.node.clone()).collect();
        self.check_members(epoch, &nodes);
        self.check_from(from_step, stages.as_ref().is_some_and(|stages| stages.starts.is_some()));
        let starts = stages.as_ref().map(|stages| match &stages.starts {
            Some(starts) => starts.clone(),
            None => from_disk(&layout::posts(&stages.layout), from_step),
        });
        let standing = |step: Option<u64>| match step {
            _ if stages.is_some() => Standing::Level,
            Some(step) if step == from_step => Standing::Level,
            Some(_) => Standing::Behind,
            None => Standing::New,
        };
        let standings: Vec<Standing> = seats.iter().map(|seat| standing(seat.step)).collect();
        let run = self.run_id();
        for (rank, seat) in seats.iter().enumerate() {
            let start = starts.as_ref().map(|starts| starts[rank].clone());
            // Simulated ranks find each other without an address.
            let seats = Vec::new();
            self.tell(&seat.node, ToReplica::Connect { run, epoch, seats, recorded, start, pass });
        }
        let over = !members.iter().all(|process| self.lives(*process));
        let layout = stages.map(|stages| stages.layout);
        let micro = layout.as_ref().and(self.driver.planned_micro_batches);
        self.driver.micro_batches = micro.or(self.driver.micro_batches);
        self.group = Some(Group::new(epoch, members, layout, from_step, &standings, self.options.batch));
        if over {
            self.break_group(epoch, Duration::ZERO);
        }
    }
}

/// What stages begin with when the state is on disk.
fn from_disk(posts: &[layout::Post], step: u64) -> Vec<Start> {
    let get = |post: &layout::Post| {
        let from = Source::Driver(StateRef { step, bytes: 1, blob: BlobId(0) });
        Get { ops: post.ops, from }
    };
    let start = |post| Start { step, norm: None, gets: if step > 0 { vec![get(post)] } else { Vec::new() } };
    posts.iter().map(start).collect()
}
