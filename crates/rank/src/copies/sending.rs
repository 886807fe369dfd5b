//! How copies get from a ward to its guardian.
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

/// What has become of the copy that was sent last.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// It is still on its way.
    pub(super) copying: AtomicBool,
    /// It was not kept.
    pub(super) missed: AtomicBool,
}

impl Sent {
    pub(super) fn begin(&self) {
        self.missed.store(false, Ordering::Release);
        self.copying.store(true, Ordering::Release);
    }

    /// Whoever sees that it is not on its way any more also sees whether it was kept.
    pub(super) fn end(&self, kept: bool) {
        self.missed.store(!kept, Ordering::Release);
        self.copying.store(false, Ordering::Release);
    }
}

/// Sends copies for as long as there are any, each when the one before has arrived.
pub(super) fn send(socket: &Socket, waiting: &Receiver<(u64, Ops, Bytes)>, sent: &Sent) {
    for (step, ops, bytes) in waiting {
        let kept = send_one(socket, step, ops, &bytes).unwrap_or_else(|error| {
            // When the group is over, this is how it ends. What was not sent whole cannot be followed by another.
            tracing::debug!(%error, step, "a copy did not arrive");
            drop(socket.shutdown(Shutdown::Both));
            false
        });
        sent.end(kept);
    }
}

/// Sends a copy; whether it is kept.
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

/// Reads so many bytes and keeps them.
pub(super) type Take = dyn Fn(&mut dyn Read, u64) -> std::io::Result<Bytes>;

/// Keeps what the ward sends, until there is no more.
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
    // Others hold the connection, too; the ward is not to wait for somebody who reads no more.
    drop(socket.shutdown(Shutdown::Both));
}

/// Keeps the next copy, or says why it cannot.
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
    // What comes after is the next copy, whatever became of this one.
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
