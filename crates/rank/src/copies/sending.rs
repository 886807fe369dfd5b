//! Sends copies from a ward to its guardian.
//!
//! ```text
//!   ward: CopyHead, bytes ──► guardian
//!               CopyReply ◄──
//! ```

use super::Copies;
use bytes::Bytes;
use phalanx_collective::Socket;
use phalanx_wire::state_frame::{CopyHead, CopyReply};
use phalanx_wire::train::Ops;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// The state of the last copy.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// It is being sent.
    pub(super) copying: AtomicBool,
    /// It was not stored.
    pub(super) missed: AtomicBool,
}

impl Sent {
    pub(super) fn begin(&self) {
        self.missed.store(false, Ordering::Release);
        self.copying.store(true, Ordering::Release);
    }

    /// `missed` is written first: a reader that sees the end also sees whether the copy was stored.
    pub(super) fn end(&self, kept: bool) {
        self.missed.store(!kept, Ordering::Release);
        self.copying.store(false, Ordering::Release);
    }
}

/// Sends copies one after the other, until the channel is closed.
pub(super) fn send(socket: &Socket, waiting: &Receiver<(u64, Ops, Bytes)>, sent: &Sent) {
    for (step, ops, bytes) in waiting {
        let kept = send_one(socket, step, ops, &bytes).unwrap_or_else(|error| {
            // This is also how a group ends. After part of a copy the stream cannot be used for another.
            tracing::debug!(%error, step, "a copy did not arrive");
            drop(socket.shutdown(Shutdown::Both));
            false
        });
        sent.end(kept);
    }
}

/// Sends a copy; returns whether the guardian stored it.
fn send_one(mut socket: &Socket, step: u64, ops: Ops, bytes: &[u8]) -> std::io::Result<bool> {
    let head = CopyHead { step, ops, bytes: bytes.len() as u64 };
    socket.write_all(&head.to_bytes())?;
    socket.write_all(bytes)?;
    let mut reply = [0; 1];
    socket.read_exact(&mut reply)?;
    match CopyReply::from_bytes(reply) {
        Some(reply) => Ok(reply == CopyReply::Kept),
        None => Err(std::io::Error::new(ErrorKind::InvalidData, "no reply to a copy")),
    }
}

/// Reads a number of bytes and stores them.
pub(super) type Take = dyn Fn(&mut dyn Read, u64) -> std::io::Result<Bytes>;

/// Stores what the ward sends, until the stream ends.
pub(super) fn receive(socket: &Socket, copies: &Copies, most: u64, take: &Take) {
    let mut missed = false;
    loop {
        match receive_one(socket, copies, most, take) {
            Ok(None) => missed = false,
            Ok(Some(error)) if !missed => {
                tracing::warn!(%error, "could not keep a copy of the stage before");
                missed = true;
            }
            Ok(Some(_)) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                tracing::warn!(%error, "keeps no more copies of the stage before");
                break;
            }
            Err(error) => {
                tracing::debug!(%error, "no more copies come");
                break;
            }
        }
    }
    // The socket has other handles, so dropping this one does not close it, and the ward would wait for an answer.
    drop(socket.shutdown(Shutdown::Both));
}

/// Stores the next copy; returns why it could not be stored.
fn receive_one(
    mut socket: &Socket,
    copies: &Copies,
    most: u64,
    take: &Take,
) -> std::io::Result<Option<std::io::Error>> {
    let mut head = [0; CopyHead::LEN];
    socket.read_exact(&mut head)?;
    let wrong = |what: String| std::io::Error::new(ErrorKind::InvalidData, what);
    let head = CopyHead::from_bytes(&head).ok_or_else(|| wrong("a copy of no operators".to_owned()))?;
    let CopyHead { step, ops, bytes: len } = head;
    if len > most {
        return Err(wrong(format!("a copy of {len} bytes, of {most} at most")));
    }
    let mut bytes = socket.take(len);
    let taken = take(&mut bytes, len);
    // Skip the rest of a copy that was not stored: the next copy follows it.
    std::io::copy(&mut bytes, &mut std::io::sink())?;
    if bytes.limit() > 0 {
        // The ward is gone, or the group is over.
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let missed = taken.map(|bytes| copies.add(step, ops, bytes)).err();
    let reply = if missed.is_none() { CopyReply::Kept } else { CopyReply::NotKept };
    socket.write_all(&reply.to_bytes())?;
    Ok(missed)
}
