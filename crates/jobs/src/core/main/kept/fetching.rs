//! Solutions that the user wants to have.

use super::Place;
use crate::core::main::{MainCommand, MainCore, WorkerKey};
use phalanx_types::{JobId, Outbox, Parcel};
use phalanx_wire::reason::FailReason;

impl MainCore {
    /// The user wants the bytes of a kept solution.
    pub fn on_wanted(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(kept) = self.kept.get_mut(&job) else {
            let result = Err(self.why_no_input(job));
            out.push(MainCommand::Delivered { job, result });
            return;
        };
        kept.wanted = true;
        if !self.is_told(job) {
            return;
        }
        let Some(kept) = self.kept.get(&job) else { return };
        match &kept.place {
            Place::Here(parcel) => {
                let parcel = parcel.clone();
                self.deliver(job, Ok(parcel), out);
            }
            Place::At { .. } => self.bring(job, out),
            Place::Nowhere => {
                self.needy.insert(job);
            }
            Place::Lost(why) => {
                let result = Err(FailReason::InputLost { job, why: why.clone() });
                self.deliver(job, result, out);
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        job: JobId,
        result: Result<Parcel, FailReason>,
        out: &mut Outbox<MainCommand>,
    ) {
        if let Some(kept) = self.kept.get_mut(&job) {
            (kept.wanted, kept.bringing) = (false, false);
        }
        out.push(MainCommand::Delivered { job, result });
    }

    /// Has the shell fetch a solution that the user waits for.
    pub(super) fn bring(&mut self, job: JobId, out: &mut Outbox<MainCommand>) {
        let Some(kept) = self.kept.get_mut(&job).filter(|kept| kept.wanted && !kept.bringing) else { return };
        let Place::At { head, holders } = &kept.place else { return };
        let Some((worker, blob)) = holders.first_key_value() else { return };
        kept.bringing = true;
        out.push(MainCommand::Bring { worker: *worker, job, head: head.clone(), blob: *blob });
    }

    /// A kept solution was fetched for the user, or could not be.
    pub fn on_brought(
        &mut self,
        worker: WorkerKey,
        job: JobId,
        result: Result<Parcel, String>,
        out: &mut Outbox<MainCommand>,
    ) {
        let Some(kept) = self.kept.get_mut(&job).filter(|kept| kept.bringing) else { return };
        kept.bringing = false;
        match result {
            Ok(parcel) if kept.wanted => self.deliver(job, Ok(parcel), out),
            Ok(_) => {}
            Err(_) => {
                // Whatever is wrong with it there, it is of no use.
                let holds = matches!(&kept.place, Place::At { holders, .. } if holders.contains_key(&worker));
                self.lose_copy(worker, job);
                if holds {
                    self.drop_at(worker, job, out);
                }
                self.bring(job, out);
                if self.is_wanted(job) {
                    self.needy.insert(job);
                }
            }
        }
    }
}
