//! Relays: connect nodes that cannot reach each other directly.
//!
//! ```text
//! A -- Register --> relay <-- Register -- B        both are told which nodes are Present
//! A -- Dial{B} ---> relay -- Incoming{ticket} --> B
//!                   relay <-- Accept{ticket} ---- B (a new connection)
//! A <-- Spliced --- relay --- Spliced ----------> B  then bytes pass through unread
//! ```

mod client;
mod registry;
mod server;

pub(crate) use client::{dial, stay_registered};
pub use server::{Relay, RelayConfig, RelayError};

use super::handshake::{read_preface, write_message};
use super::refusal::ConnError;
use bytes::BytesMut;
use phalanx_wire::codec;
use phalanx_wire::frame::{self, FrameError, FrameKind, HEADER_LEN};
use phalanx_wire::handshake::{Purpose, check_preface};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// How often both sides of a registration send a message.
const PACE: Duration = Duration::from_secs(2);
/// Silence after which a registration is over: three missed messages.
const SILENCE: Duration = Duration::from_secs(6);

/// Reads one message and no byte more: the bytes after it may belong to another node.
async fn read_exactly<T: DeserializeOwned>(stream: &mut TcpStream) -> Result<T, ConnError> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.map_err(ConnError::from_io)?;
    let [l0, l1, l2, l3, kind] = header;
    if kind != FrameKind::Relay as u8 {
        return Err(FrameError::UnknownKind(kind).into());
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    // Before a splice only lists of nodes are long, and those come on registrations only.
    let max = FrameKind::Handshake.max_len();
    if len > max {
        return Err(FrameError::TooLong { kind: FrameKind::Relay, len, max }.into());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.map_err(ConnError::from_io)?;
    Ok(codec::decode(&body)?)
}

/// Takes the next message from a registration's buffer.
fn take_message<T: DeserializeOwned>(buffer: &mut BytesMut) -> Result<Option<T>, ConnError> {
    let Some(frame) = frame::take(buffer)? else { return Ok(None) };
    if frame.kind != FrameKind::Relay {
        return Err(FrameError::Unexpected { expected: FrameKind::Relay, got: frame.kind }.into());
    }
    Ok(Some(codec::decode(&frame.body)?))
}

async fn expect_relay_preface(stream: &mut TcpStream) -> Result<(), ConnError> {
    Ok(check_preface(read_preface(stream).await?, Purpose::Relay)?)
}
