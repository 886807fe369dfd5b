//! Frames of blocking streams: a length and bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The most bytes of a message of a rendezvous.
pub(super) const MOST: usize = 16 << 20;

pub(super) fn write_frame(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), bytes].concat())
}

pub(super) fn read_frame(mut stream: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn write_message(stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    write_frame(stream, &postcard::to_allocvec(message).map_err(io::Error::other)?)
}

pub(super) fn read_message<T: DeserializeOwned>(stream: impl Read) -> io::Result<T> {
    let bytes = read_frame(stream, MOST)?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
