//! Every message that a body can be decoded as, and what is asserted of the outcome.

use crate::memory;
use crate::stable::assert_stable;
use phalanx_types::Parcel;
use phalanx_wire::ballot::{Ballot, Greeting, PassBallot};
use phalanx_wire::bulk::BulkMessage;
use phalanx_wire::codec;
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::handshake::{Challenge, Hello, HelloReply};
use phalanx_wire::jobs::{Done, DoneResult, FromWorker, JobAnswer, JobQuery, ParcelRef, ToWorker};
use phalanx_wire::launch::{FromRankHost, Reserve, ReserveReply, ToRankHost};
use phalanx_wire::live::{FromLive, ToLive};
use phalanx_wire::measure::{FromMeasured, ToMeasured};
use phalanx_wire::relay::{FromRelay, RelayChallenge, ToRelay};
use phalanx_wire::stage_frame::FrameHead;
use phalanx_wire::state_frame::{CopyHead, CopyReply, StateHead, StateLength};
use phalanx_wire::train::{FromReplica, ToReplica};
use phalanx_wire::trial::{FromTrials, ToTrials, TrialSolution, TrialTask};
use phalanx_wire::vote::Vote;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::fmt::Debug;

const DECODERS: [fn(&[u8]) -> bool; 24] = [
    plain::<Challenge>,
    plain::<Hello>,
    plain::<HelloReply>,
    fabric,
    plain::<BulkMessage>,
    plain::<RelayChallenge>,
    plain::<ToRelay>,
    plain::<FromRelay>,
    plain::<ToReplica>,
    plain::<FromReplica>,
    to_worker,
    from_worker,
    plain::<JobQuery>,
    plain::<JobAnswer>,
    plain::<ToMeasured>,
    plain::<FromMeasured>,
    plain::<ToLive>,
    plain::<FromLive>,
    plain::<Reserve>,
    plain::<ReserveReply>,
    plain::<ToRankHost>,
    plain::<FromRankHost>,
    plain::<ToTrials>,
    plain::<FromTrials>,
];

/// Tries a body as every message and returns how many it is.
pub(crate) fn try_all(body: &[u8]) -> usize {
    DECODERS.iter().filter(|decoder| decoder(body)).count()
}

type RawDecoder = fn(&[u8]) -> bool;

/// What has no frame, by the beginning of the names of its golden bytes.
const RAW: [(&str, RawDecoder); 11] = [
    ("raw-vote", |bytes| fixed(bytes, Vote::from_bytes, Vote::to_bytes)),
    ("raw-ballot", plain::<Ballot>),
    ("raw-pass-ballot", plain::<PassBallot>),
    ("raw-greeting", |bytes| fixed(bytes, Greeting::from_bytes, Greeting::to_bytes)),
    ("raw-frame-head", |bytes| fixed(bytes, FrameHead::from_bytes, |head| head.to_bytes())),
    ("raw-state", |bytes| state(bytes) || bytes == StateLength::TAKEN),
    ("raw-state-length", |bytes| {
        fixed(bytes, |bytes| Some(StateLength::from_bytes(*bytes)), |len| len.to_bytes())
    }),
    ("raw-copy-head", |bytes| fixed(bytes, CopyHead::from_bytes, |head| head.to_bytes())),
    ("raw-copy", |bytes| fixed(bytes, |bytes| CopyReply::from_bytes(*bytes), |reply| reply.to_bytes())),
    ("raw-trial-task", plain::<TrialTask>),
    ("raw-trial-solution", plain::<TrialSolution>),
];

/// Tries bytes as everything that has no frame.
pub(crate) fn try_raw(bytes: &[u8]) {
    for (_, decoder) in RAW {
        decoder(bytes);
    }
}

/// Whether bytes are what their name says.
pub(crate) fn is_raw(name: &str, bytes: &[u8]) -> bool {
    RAW.iter().any(|(prefix, decoder)| name.starts_with(prefix) && decoder(bytes))
}

/// A layout of fixed length at the start of some bytes: what is read is written as the same bytes.
fn fixed<const N: usize, T: Debug>(
    bytes: &[u8],
    read: impl Fn(&[u8; N]) -> Option<T>,
    write: impl Fn(&T) -> [u8; N],
) -> bool {
    let Some(bytes) = bytes.first_chunk::<N>() else { return false };
    let (value, peak) = memory::peak_of(|| read(bytes));
    assert_eq!(peak, 0, "a layout of fixed length takes no memory");
    let Some(value) = value else { return false };
    assert_eq!(&write(&value), bytes, "{value:?}");
    true
}

/// A state is cut into parts that together are all of it.
fn state(bytes: &[u8]) -> bool {
    let Some((head, weights, optimizer)) = StateHead::split(bytes) else { return false };
    assert_eq!(bytes.get(..StateHead::LEN), Some(&head.to_bytes()[..]));
    assert_eq!((weights.start, weights.end, optimizer.end), (StateHead::LEN, optimizer.start, bytes.len()));
    assert_eq!(weights.len() as u64, head.weights_bytes);
    true
}

fn check<T>(body: &[u8]) -> Option<T>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let (decoded, peak) = memory::peak_of(|| codec::decode::<T>(body));
    let allowed = memory::allowance(body.len());
    let (name, len) = (type_name::<T>(), body.len());
    assert!(peak <= allowed, "{name} of {len} bytes took {peak} of memory, {allowed} are allowed");
    let message = decoded.ok()?;
    assert_stable(&message, body);
    Some(message)
}

fn plain<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) -> bool {
    check::<T>(body).is_some()
}

fn fabric(body: &[u8]) -> bool {
    let Some(message) = check::<FabricMessage>(body) else { return false };
    match message {
        FabricMessage::Request { body, .. } => {
            plain::<JobQuery>(&body);
            plain::<ToMeasured>(&body);
            plain::<ToLive>(&body);
            plain::<Reserve>(&body);
            plain::<ToTrials>(&body);
        }
        FabricMessage::Reply { result: Ok(body), .. } => {
            plain::<JobAnswer>(&body);
            plain::<FromMeasured>(&body);
            plain::<FromLive>(&body);
            plain::<ReserveReply>(&body);
            plain::<FromTrials>(&body);
        }
        _ => {}
    }
    true
}

fn to_worker(body: &[u8]) -> bool {
    let Some(message) = check::<ToWorker>(body) else { return false };
    if let ToWorker::Dispatch(dispatch) = message {
        let offers = dispatch.offers.into_iter().flat_map(|group| group.offers);
        offers.for_each(|offer| open(offer.payload));
    }
    true
}

fn from_worker(body: &[u8]) -> bool {
    match check::<FromWorker>(body) {
        Some(FromWorker::Join(join)) => open_solved(join.done),
        Some(FromWorker::Report(report)) => open_solved(report.done),
        None => return false,
    }
    true
}

fn open_solved(done: Vec<Done>) {
    for done in done {
        if let DoneResult::Solved(solution) = done.result {
            open(solution);
        }
    }
}

/// A parcel that opens is what its head and body said.
fn open(payload: ParcelRef) {
    if let ParcelRef::Inline { head, body } = payload.clone()
        && let Ok(parcel) = Parcel::from_parts(head, body)
    {
        assert_eq!(ParcelRef::inline(&parcel), payload);
    }
}
