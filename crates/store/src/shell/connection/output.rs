//! Replies on their way to a client.

use super::Connection;
use crate::shell::hang_up::HangUp;
use crate::shell::persist::RecordNumber;
use bytes::Buf;
use phalanx_resp::{ProtocolError, Reply};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + HangUp + Unpin> Connection<S> {
    /// Sends a reply when its record is recorded, and behind all replies before it.
    pub(super) fn answer(&mut self, after: RecordNumber, reply: Reply) {
        if self.held.is_empty() && after == RecordNumber::NONE {
            self.output.push(reply, self.version);
        } else {
            self.held.push(after, reply, self.version);
        }
    }

    /// Takes over the replies whose records are decided.
    pub(super) fn release_held(&mut self, context: &mut Context<'_>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let Some(persistence) = self.hub.persistence() else { return false };
        self.held.release(&persistence.acknowledgements, self.client, context, &mut self.output)
    }

    /// Tells the client why its bytes are no request, and ends the connection.
    pub(super) fn fail(&mut self, error: &ProtocolError) {
        self.answer(RecordNumber::NONE, Reply::error(format!("ERR Protocol error: {error}")));
        self.closing = true;
    }

    /// Writes replies from where they lie.
    pub(super) fn write(&mut self, context: &mut Context<'_>, left: &mut usize) -> io::Result<bool> {
        let mut any = false;
        let may_send = self.transfer.may_send(self.output.remaining(), context);
        while may_send && self.output.remaining() > 0 && *left > 0 {
            let mut slices = [IoSlice::new(&[]); 32];
            let filled = self.output.slices(&mut slices, *left);
            let slices = slices.get(..filled).unwrap_or_default();
            let stream = Pin::new(&mut self.stream);
            let written = match slices {
                // The plain call is the quicker one.
                [slice] => stream.poll_write(context, slice),
                _ => stream.poll_write_vectored(context, slices),
            };
            match written? {
                Poll::Pending => break,
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(n) => {
                    self.output.advance(n);
                    *left = left.saturating_sub(n);
                    any = true;
                }
            }
        }
        if self.output.remaining() == 0 && self.held.is_empty() {
            self.sent_transit = None;
        }
        self.transfer.on_written(any, self.output.remaining());
        // Sockets send at once; this is for streams that buffer.
        self.unflushed |= any;
        if self.unflushed && self.output.remaining() == 0 {
            self.unflushed = Pin::new(&mut self.stream).poll_flush(context)?.is_pending();
        }
        Ok(any)
    }
}
