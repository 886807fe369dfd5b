//! Packets over a Unix socket, with a file attached now and then.

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Sends one packet; `false` when there is no room for it now.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    file: Option<BorrowedFd<'_>>,
    wait: bool,
) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    loop {
        match sendmsg(socket, parts, &mut control, flags) {
            Ok(_sent) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes one packet: its length and the file that came with it. `None` when there is none now.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = if wait { RecvFlags::CMSG_CLOEXEC } else { RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT };
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    Ok(Some((received.bytes, file)))
}
