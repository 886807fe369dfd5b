//! Whether a client is still there to see a reply.
//!
//! A socket that was ready for reading says nothing of what arrived since: the client may have waited too long and
//! closed its side, and the runtime learns of it only when it waits for sockets again.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use tokio::net::{TcpStream, UnixStream};

/// A stream that knows more of its peer than what was read from it.
pub(crate) trait HangUp {
    /// Whether the peer has closed its side, however much of what it sent is still to be read.
    fn has_hung_up(&self) -> bool;

    /// Whether the peer refused what was written last, since it had closed before.
    fn refused_writes(&self) -> bool;
}

fn peer_closed(socket: &impl AsFd) -> bool {
    let mut sockets = [PollFd::new(socket, PollFlags::RDHUP)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut sockets, Some(&none)).is_ok()
        && sockets.iter().any(|socket| socket.revents().intersects(closed))
}

impl HangUp for TcpStream {
    fn has_hung_up(&self) -> bool {
        peer_closed(self)
    }

    fn refused_writes(&self) -> bool {
        self.take_error().map_or(true, |error| error.is_some())
    }
}

impl HangUp for UnixStream {
    fn has_hung_up(&self) -> bool {
        peer_closed(self)
    }

    fn refused_writes(&self) -> bool {
        self.take_error().map_or(true, |error| error.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Effects, Origin, Outcome, Settings};
    use crate::shell::connection::serve;
    use crate::shell::hub::Hub;
    use bytes::Bytes;
    use phalanx_resp::Reply;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

    const APPEND: &[u8] = b"*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\na\r\n";

    /// A client that sent an append and closed; that it closed is seen in its input only after a reply was written.
    struct Closed {
        unread: &'static [u8],
        was_answered: bool,
        hung_up: bool,
        refused: bool,
    }

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            if self.unread.is_empty() && !self.was_answered {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            buffer.put_slice(std::mem::take(&mut self.unread));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            self.was_answered = true;
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl HangUp for Closed {
        fn has_hung_up(&self) -> bool {
            self.hung_up
        }

        fn refused_writes(&self) -> bool {
            self.refused
        }
    }

    /// The length of the list after another connection has sent the same append.
    async fn length_after_repeat(hung_up: bool, refused: bool) -> Reply {
        let hub = Arc::new(Hub::in_memory(Settings::default()));
        let origin = Origin { peer: String::new(), host: String::new(), port: 0, trusted: false };
        let first = hub.connect(origin.clone()).unwrap();
        let stream = Closed { unread: APPEND, was_answered: false, hung_up, refused };
        serve(stream, hub.clone(), first, false).await;
        let second = hub.connect(origin).unwrap();
        let args: Vec<Bytes> = ["rpush", "l", "a"].map(Bytes::from).into();
        match hub.execute(second.client, &args, &mut Effects::default()).outcome {
            Outcome::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_append_of_a_client_that_closed_before_its_reply_may_be_repeated() {
        assert_eq!(length_after_repeat(true, false).await, Reply::Integer(1));
        assert_eq!(length_after_repeat(false, true).await, Reply::Integer(1));
        assert_eq!(length_after_repeat(false, false).await, Reply::Integer(2), "it saw the reply");
    }

    #[tokio::test]
    async fn sockets_tell_that_their_peer_has_closed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        client.write_all(b"unread").await.unwrap();
        assert!(!server.has_hung_up() && !server.refused_writes());
        drop(client);
        assert!(server.has_hung_up());
        server.writable().await.unwrap();
        assert_eq!(server.try_write(b"too late for it!!").unwrap(), 17);
        assert!(server.refused_writes());
    }
}
