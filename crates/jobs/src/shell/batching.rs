//! Gathering a core's commands into few messages, cutting what would be too long for one, and
//! sending them.

use phalanx_fabric::{FrameKind, LostReason, Peer};
use phalanx_types::{Class, Epoch, Needs};
use phalanx_wire::jobs::{
    Dispatch, Done, DoneResult, Input, InputPlace, Offer, OfferGroup, ParcelRef, Report,
};
use phalanx_wire::reason::FailReason;
use serde::Serialize;
use smol_str::SmolStr;

/// A message is sent off once its payloads pass this; the frame ceiling is far above.
const SOFT_LIMIT: usize = 512 << 10;

/// Sends a message of the jobs protocol. What cannot be sent ends the link: both sides then agree
/// that it was not said.
pub(super) fn post<T: Serialize>(peer: &Peer, message: &T) {
    match peer.send(FrameKind::Jobs, message) {
        Ok(()) => {}
        Err(error) if error.class() == Class::Fatal => {
            tracing::error!(node = %peer.id(), %error, "message cannot be sent");
            peer.close(LostReason::LinkBroken { detail: error.to_string().into() });
        }
        // The link is closing; its Down event does the rest.
        Err(error) => tracing::debug!(node = %peer.id(), %error, "message not sent"),
    }
}

/// A [`Dispatch`] in the making.
#[derive(Debug, Default)]
pub(super) struct DispatchBuilder {
    pub(super) dispatch: Dispatch,
    bytes: usize,
    /// The number of the last message to this link.
    sent: u64,
}

impl DispatchBuilder {
    /// Adds an offer; `true` when the message should go out before more is added.
    pub(super) fn offer(&mut self, kind: &SmolStr, needs: Needs, offer: Offer) -> bool {
        self.bytes += inline_len(&offer.payload) + offer.inputs.iter().map(input_len).sum::<usize>() + 32;
        match self.dispatch.offers.last_mut() {
            Some(group) if group.kind == *kind && group.needs == needs => group.offers.push(offer),
            _ => {
                self.dispatch.offers.push(OfferGroup { kind: kind.clone(), needs, offers: vec![offer] });
            }
        }
        self.bytes > SOFT_LIMIT
    }

    /// The message so far, or `None` when there is nothing in it.
    pub(super) fn take(&mut self, epoch: Epoch) -> Option<Dispatch> {
        let d = &self.dispatch;
        let empty = d.acks.is_empty()
            && d.keeps.is_empty()
            && d.drops.is_empty()
            && d.go.is_empty()
            && d.cancels.is_empty()
            && d.recalls.is_empty()
            && d.offers.is_empty();
        if empty {
            return None;
        }
        self.bytes = 0;
        self.sent += 1;
        let mut dispatch = std::mem::take(&mut self.dispatch);
        (dispatch.epoch, dispatch.number) = (epoch, self.sent);
        Some(dispatch)
    }
}

/// Cuts a report whose solutions are too much for one message into several.
pub(super) fn split_report(mut report: Report) -> Vec<Report> {
    let mut parts = Vec::new();
    let mut bytes = 0;
    let (done, kept) = (std::mem::take(&mut report.done), std::mem::take(&mut report.kept));
    let frame = Report {
        epoch: report.epoch,
        window: report.window,
        draining: report.draining,
        taken: report.taken.clone(),
        ..Report::default()
    };
    for result in done {
        bytes += done_len(&result);
        report.done.push(result);
        if bytes > SOFT_LIMIT {
            parts.push(std::mem::replace(&mut report, frame.clone()));
            bytes = 0;
        }
    }
    for solution in kept {
        bytes += solution.head.encoded_len() + 32;
        report.kept.push(solution);
        if bytes > SOFT_LIMIT {
            parts.push(std::mem::replace(&mut report, frame.clone()));
            bytes = 0;
        }
    }
    parts.push(report);
    parts
}

/// About how many bytes an input takes in a message.
pub(super) fn input_len(input: &Input) -> usize {
    match &input.place {
        InputPlace::Inline { head, body } => body.len() + head.encoded_len(),
        InputPlace::At { head, node, .. } => head.encoded_len() + node.as_str().len() + 16,
    }
}

fn done_len(done: &Done) -> usize {
    match &done.result {
        DoneResult::Solved(parcel) => inline_len(parcel) + 32,
        DoneResult::Failed { reason: FailReason::Raised(raised), .. } => raised.encoded_len(),
        DoneResult::Failed { reason, .. } => reason.to_string().len() + 64,
    }
}

fn inline_len(parcel: &ParcelRef) -> usize {
    match parcel {
        ParcelRef::Inline { head, body } => body.len() + head.encoded_len(),
        ParcelRef::Blob { head, .. } => head.encoded_len(),
    }
}
