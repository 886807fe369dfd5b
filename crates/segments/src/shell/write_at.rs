//! Writing many buffers to one place of a file, without copying them together.

use rustix::io::{Errno, pwritev};
use std::fs::File;
use std::io::{self, IoSlice};

/// The most buffers the system takes in one call.
const MOST_BUFFERS: usize = 1024;

/// Writes all buffers, one behind the other, from `offset` on.
pub(crate) fn write_all_at<'a>(
    file: &File,
    mut offset: u64,
    buffers: impl IntoIterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut buffers = buffers.into_iter().filter(|b| !b.is_empty());
    let mut slices: Vec<IoSlice<'a>> = Vec::new();
    loop {
        slices.clear();
        slices.extend(buffers.by_ref().take(MOST_BUFFERS).map(IoSlice::new));
        let mut left = slices.as_mut_slice();
        if left.is_empty() {
            return Ok(());
        }
        while !left.is_empty() {
            match pwritev(file, left, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
