//! What recordings and snapshots keep of values that hold the bytes of users.
//!
//! No decision depends on the content of a payload or a solution, so none of it is kept. What
//! decisions do depend on is: whether a solution fits its own head, and where a large one waits.

use super::job::{JobSpec, Outcome};
use super::main::recipe_len;
use bytes::Bytes;
use phalanx_types::{JobId, LeaseId, Needs, Parcel, ParcelHead};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::jobs::{Done, DoneResult, ParcelRef};
use phalanx_wire::reason::FailReason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;
use std::time::Duration;

/// Values in a row that are alike are kept as one value and a count, up to this count.
const LONGEST_RUN: u32 = 1 << 16;

/// `Time::NEVER` in one byte.
pub(super) mod short_never {
    use phalanx_types::Time;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.0.wrapping_add(1))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        Ok(Time(u64::deserialize(from)?.wrapping_sub(1)))
    }
}

/// A list in which neighbours are mostly equal.
pub(super) mod runs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T, S>(all: &[T], to: S) -> Result<S::Ok, S::Error>
    where
        T: PartialEq + Serialize,
        S: Serializer,
    {
        let runs: Vec<(usize, &T)> =
            all.chunk_by(|a, b| a == b).filter_map(|run| Some((run.len(), run.first()?))).collect();
        runs.serialize(to)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: Clone + Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let runs = Vec::<(u32, T)>::deserialize(from)?;
        let count = |n: u32| n.min(super::LONGEST_RUN) as usize;
        Ok(runs.into_iter().flat_map(|(n, value)| std::iter::repeat_n(value, count(n))).collect())
    }
}

/// The length of a parcel, of which nothing else is kept.
pub(super) fn head_len<S: Serializer>(head: &ParcelHead, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(body_len(head))
}

fn body_len(head: &ParcelHead) -> u64 {
    head.body_len().unwrap_or(u64::MAX)
}

/// An outcome without its solution.
pub(super) fn outcome<S: Serializer>(outcome: &Outcome, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kept<'a> {
        Solved,
        Failed(&'a FailReason),
        Cancelled,
        Expired,
        Stays(u64),
    }
    let kept = match outcome {
        Outcome::Solved(_) => Kept::Solved,
        Outcome::Kept { len } => Kept::Stays(*len),
        Outcome::Failed(reason) => Kept::Failed(reason),
        Outcome::Cancelled => Kept::Cancelled,
        Outcome::Expired => Kept::Expired,
    };
    kept.serialize(to)
}

/// What the user was given of a kept solution, without its bytes.
pub(super) fn delivered<S: Serializer>(
    result: &Result<Parcel, FailReason>,
    to: S,
) -> Result<S::Ok, S::Error> {
    result.as_ref().err().serialize(to)
}

/// A head of which only the length is kept.
pub(super) mod head {
    use super::{Deserialize, Deserializer, ParcelHead, Serializer, body_len};

    pub(crate) fn serialize<S: Serializer>(head: &ParcelHead, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(body_len(head))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ParcelHead, D::Error> {
        Ok(ParcelHead { bytes_len: u64::deserialize(from)?, tensors: Vec::new() })
    }
}

/// Where a solution waits to be fetched; of its head only the length.
pub(super) mod place {
    use super::{BlobId, Deserialize, Deserializer, ParcelHead, Serialize, Serializer, body_len};

    pub(crate) fn serialize<S: Serializer>(
        place: &Option<(ParcelHead, BlobId)>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        place.as_ref().map(|(head, blob)| (body_len(head), *blob)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<(ParcelHead, BlobId)>, D::Error> {
        let place = Option::<(u64, BlobId)>::deserialize(from)?;
        Ok(place.map(|(bytes_len, blob)| (ParcelHead { bytes_len, tensors: Vec::new() }, blob)))
    }
}

/// Kept solutions; of their heads only the lengths.
pub(super) mod solutions {
    use super::{BlobId, Deserialize, Deserializer, JobId, ParcelHead, Serialize, Serializer, body_len};
    use phalanx_wire::jobs::KeptSolution;

    pub(crate) fn serialize<S: Serializer>(all: &[KeptSolution], to: S) -> Result<S::Ok, S::Error> {
        let all: Vec<(JobId, u64, BlobId)> = all.iter().map(|k| (k.job, body_len(&k.head), k.blob)).collect();
        all.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<KeptSolution>, D::Error> {
        let all = Vec::<(JobId, u64, BlobId)>::deserialize(from)?;
        let kept = |(job, bytes_len, blob)| KeptSolution {
            job,
            head: ParcelHead { bytes_len, tensors: Vec::new() },
            blob,
        };
        Ok(all.into_iter().map(kept).collect())
    }
}

/// A fetched solution: whether it came, or why not.
pub(super) mod fetched {
    use super::{Deserialize, Deserializer, Parcel, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        result: &Result<Parcel, String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        result.as_ref().err().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Result<Parcel, String>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map_or_else(|| Ok(Parcel::default()), Err))
    }
}

/// Submitted jobs without their payloads; those that are alike together.
pub(super) mod specs {
    use super::{
        Deserialize, Deserializer, Duration, JobId, JobSpec, LONGEST_RUN, Needs, Parcel, Serialize,
        Serializer, SmolStr, recipe_len,
    };

    const MOST_ZEROS: u64 = 1 << 30;

    #[derive(Serialize, Deserialize)]
    struct Kept<K> {
        count: u32,
        kind: K,
        priority: i32,
        deadline: Option<Duration>,
        max_attempts: u32,
        needs: Needs,
        keep: bool,
        inputs: Vec<JobId>,
        /// Decides how many recipes are remembered.
        payload_len: u64,
    }

    fn alike(a: &JobSpec, b: &JobSpec) -> bool {
        a.kind == b.kind
            && a.priority == b.priority
            && a.deadline == b.deadline
            && a.max_attempts == b.max_attempts
            && a.needs == b.needs
            && a.keep == b.keep
            && a.inputs == b.inputs
            && (!a.keep || recipe_len(&a.payload) == recipe_len(&b.payload))
    }

    pub(crate) fn serialize<S: Serializer>(specs: &[JobSpec], to: S) -> Result<S::Ok, S::Error> {
        let mut kept: Vec<Kept<&SmolStr>> = Vec::new();
        let mut last: Option<&JobSpec> = None;
        for spec in specs {
            match kept.last_mut() {
                Some(run) if run.count < LONGEST_RUN && last.is_some_and(|last| alike(last, spec)) => {
                    run.count += 1;
                }
                _ => {
                    kept.push(Kept {
                        count: 1,
                        kind: &spec.kind,
                        priority: spec.priority,
                        deadline: spec.deadline,
                        max_attempts: spec.max_attempts,
                        needs: spec.needs,
                        keep: spec.keep,
                        inputs: spec.inputs.clone(),
                        payload_len: if spec.keep { recipe_len(&spec.payload) } else { 0 },
                    });
                    last = Some(spec);
                }
            }
        }
        kept.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<JobSpec>, D::Error> {
        let mut specs = Vec::new();
        for run in Vec::<Kept<SmolStr>>::deserialize(from)? {
            let Kept { count, kind, priority, deadline, max_attempts, needs, keep, inputs, payload_len } =
                run;
            // Zeros that are never touched take no memory; recordings of this program are below the bound.
            let zeros = usize::try_from(payload_len.min(MOST_ZEROS)).unwrap_or(0);
            let payload = Parcel::from_bytes(vec![0; zeros]);
            let spec = JobSpec { kind, payload, priority, deadline, max_attempts, needs, keep, inputs };
            specs.extend(std::iter::repeat_n(spec, count.min(LONGEST_RUN) as usize));
        }
        Ok(specs)
    }
}

/// The ends of leases without solutions; small solutions of jobs at equal distances together.
pub(super) mod done {
    use super::{
        Bytes, Deserialize, Deserializer, Done, JobId, Kept, LONGEST_RUN, LeaseId, ParcelHead, Serialize,
        Serializer,
    };
    use super::{DoneResult, ParcelRef};

    pub(crate) fn serialize<S: Serializer>(all: &[Done], to: S) -> Result<S::Ok, S::Error> {
        let mut kept: Vec<Kept> = Vec::new();
        for done in all {
            let next = Kept::of(done);
            if !kept.last_mut().is_some_and(|run| run.takes(&next)) {
                kept.push(next);
            }
        }
        kept.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Done>, D::Error> {
        let mut all = Vec::new();
        for run in Vec::<Kept>::deserialize(from)? {
            let inline = |bytes_len| {
                let head = ParcelHead { bytes_len, tensors: Vec::new() };
                DoneResult::Solved(ParcelRef::Inline { head, body: Bytes::new() })
            };
            let (lease, result) = match run {
                Kept::Solved { first, stride, more } => {
                    for k in 0..=u64::from(more.min(LONGEST_RUN)) {
                        let job = JobId(first.job.0.wrapping_add(stride.wrapping_mul(k)));
                        let lease = LeaseId { job, number: first.number };
                        all.push(Done { lease, result: inline(0), run_micros: 0 });
                    }
                    continue;
                }
                // A head of one byte for a body of none: just as unfit.
                Kept::Unfit { lease } => (lease, inline(1)),
                Kept::Blob { lease, len, blob } => {
                    let head = ParcelHead { bytes_len: len, tensors: Vec::new() };
                    (lease, DoneResult::Solved(ParcelRef::Blob { head, blob }))
                }
                Kept::Failed { lease, reason, retry } => (lease, DoneResult::Failed { reason, retry }),
            };
            all.push(Done { lease, result, run_micros: 0 });
        }
        Ok(all)
    }
}

/// What is kept of one end of a lease, or of several alike.
#[derive(Serialize, Deserialize)]
enum Kept {
    /// Small solutions that fit their heads: of `first`, and of `more` jobs `stride` apart.
    Solved {
        first: LeaseId,
        stride: u64,
        more: u32,
    },
    Unfit {
        lease: LeaseId,
    },
    Blob {
        lease: LeaseId,
        len: u64,
        blob: BlobId,
    },
    Failed {
        lease: LeaseId,
        reason: FailReason,
        retry: bool,
    },
}

impl Kept {
    fn of(done: &Done) -> Self {
        let lease = done.lease;
        match &done.result {
            DoneResult::Solved(ParcelRef::Inline { head, body }) if fits(head, body) => {
                Kept::Solved { first: lease, stride: 0, more: 0 }
            }
            DoneResult::Solved(ParcelRef::Inline { .. }) => Kept::Unfit { lease },
            DoneResult::Solved(ParcelRef::Blob { head, blob }) => {
                Kept::Blob { lease, len: body_len(head), blob: *blob }
            }
            DoneResult::Failed { reason, retry } => {
                Kept::Failed { lease, reason: reason.clone(), retry: *retry }
            }
        }
    }

    /// Takes in the next one if it goes on with the run.
    fn takes(&mut self, next: &Kept) -> bool {
        let (Kept::Solved { first, stride, more }, Kept::Solved { first: lease, .. }) = (self, next) else {
            return false;
        };
        let from_first = lease.job.0.wrapping_sub(first.job.0);
        if *more == 0 {
            *stride = from_first;
        }
        let goes_on = lease.number == first.number
            && *more < LONGEST_RUN
            && from_first == stride.wrapping_mul(u64::from(*more) + 1);
        *more += u32::from(goes_on);
        goes_on
    }
}

/// What [`Parcel::from_parts`] will say of them.
fn fits(head: &ParcelHead, body: &Bytes) -> bool {
    if head.tensors.is_empty() {
        return head.bytes_len == body.len() as u64;
    }
    Parcel::from_parts(head.clone(), body.clone()).is_ok()
}
