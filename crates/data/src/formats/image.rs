//! Decoding one image from a PNG or JPEG file.

use crate::error::{DataError, Fault, Origin};
use crate::inflate;
use crate::limit::{Budget, Limit, reserve, zeros};
use crate::map::{map, open_regular};
use crate::spec::Format;
use std::io::{BufRead, BufReader, Cursor, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use zune_core::bytestream::{ZByteReaderTrait, ZCursor};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Every bit of a JPEG encodes at most a block of 8 by 8 pixels, or two across with halved colour.
const JPEG_PIXELS_PER_BYTE: u64 = 8 * 64 * 4;
/// Every byte of an inflated PNG encodes at most eight pixels.
const PNG_PIXELS_PER_BYTE: u64 = 8 * inflate::most(1);

/// The header of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Height and width.
    pub(super) size: [usize; 2],
    pub(super) colour: bool,
}

/// Pixels row by row, the channels of each together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) size: [usize; 2],
    pub(super) channels: usize,
    pub(super) data: Vec<u8>,
}

/// What is wrong with an image.
#[derive(Debug)]
enum Wrong {
    /// The decoder's message.
    Image(String),
    /// It takes too much memory.
    Memory(Fault),
}

impl From<&str> for Wrong {
    fn from(what: &str) -> Self {
        Self::Image(what.to_owned())
    }
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Memory(fault)
    }
}

fn wrong(error: impl std::fmt::Display) -> Wrong {
    Wrong::Image(error.to_string())
}

impl Header {
    /// The most memory that decoding it takes: the file's own channels, those that are asked for, and what a JPEG
    /// decoder keeps of an image that comes in several scans.
    pub(super) fn implied(self) -> u64 {
        /// Bytes for each pixel: four channels, three more, and three of two bytes.
        const PIXEL: u64 = 4 + 3 + 6;
        (self.size[0] as u64).saturating_mul(self.size[1] as u64).saturating_mul(PIXEL)
    }
}

/// Reads no more of the file than its header.
pub(super) fn header(file: &Path) -> Result<Header, DataError> {
    let (source, len) = open_regular(file)?;
    let mut reader = BufReader::with_capacity(4 << 10, source);
    let jpeg = reader.fill_buf().map_err(|source| DataError::Read { file: file.to_owned(), source })?;
    let jpeg = is_jpeg(jpeg);
    guarded(file, || {
        let header = if jpeg { jpeg_header(reader)? } else { png_header(reader)? };
        plausible(header.size, len, if jpeg { JPEG_PIXELS_PER_BYTE } else { PNG_PIXELS_PER_BYTE })?;
        Ok(header)
    })
}

/// Decodes a whole file to 1 channel or 3.
pub(super) fn decode(file: &Path, channels: usize, limit: Limit) -> Result<Pixels, DataError> {
    let bytes = map(file)?;
    let budget = Budget::new(limit);
    guarded(file, || {
        let pixels = if is_jpeg(&bytes) { jpeg(&bytes, &budget) } else { png(&bytes, &budget) }?;
        with_channels(pixels, channels)
    })
}

fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8, 0xff])
}

/// Runs a third-party decoder. If it panics on an unusual file, the file is reported as malformed.
fn guarded<T>(file: &Path, decode: impl FnOnce() -> Result<T, Wrong>) -> Result<T, DataError> {
    let wrong = match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(result)) => return Ok(result),
        Ok(Err(wrong)) => wrong,
        Err(_) => "the decoder gave up".into(),
    };
    Err(match wrong {
        Wrong::Image(what) => DataError::Image { what, file: file.to_owned() },
        Wrong::Memory(fault) => too_much(file, fault),
    })
}

/// The error of an image that takes too much memory.
pub(super) fn too_much(file: &Path, fault: Fault) -> DataError {
    DataError::Malformed { format: Format::Images, fault, origin: Origin::file(file) }
}

/// Refuses a size that is impossible for this many bytes.
fn plausible([height, width]: [usize; 2], bytes: u64, pixels_per_byte: u64) -> Result<(), Wrong> {
    match (height as u64).checked_mul(width as u64) {
        Some(0) => Err("it has no pixels".into()),
        Some(pixels) if pixels <= bytes.saturating_mul(pixels_per_byte) => Ok(()),
        _ => Err("it is too short for its size".into()),
    }
}

fn png_header(reader: impl BufRead + Seek) -> Result<Header, Wrong> {
    let mut decoder = png::Decoder::new(reader);
    let info = decoder.read_header_info().map_err(wrong)?;
    let gray = matches!(info.color_type, png::ColorType::Grayscale | png::ColorType::GrayscaleAlpha);
    Ok(Header { size: [info.height as usize, info.width as usize], colour: !gray })
}

fn png(bytes: &[u8], budget: &Budget) -> Result<Pixels, Wrong> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(wrong)?;
    let len = reader.output_buffer_size().ok_or("it is far too large")?;
    let info = reader.info();
    plausible([info.height as usize, info.width as usize], bytes.len() as u64, PNG_PIXELS_PER_BYTE)?;
    let header = Header { size: [info.height as usize, info.width as usize], colour: true };
    budget.check(header.implied().max(len as u64))?;
    let mut data = zeros(len)?;
    let info = reader.next_frame(&mut data).map_err(wrong)?;
    data.truncate(info.buffer_size());
    let size = [info.height as usize, info.width as usize];
    Ok(Pixels { size, channels: info.color_type.samples(), data })
}

fn jpeg_header(reader: impl ZByteReaderTrait) -> Result<Header, Wrong> {
    let mut decoder = JpegDecoder::new(reader);
    decoder.decode_headers().map_err(wrong)?;
    let info = decoder.info().ok_or("no header")?;
    let colour = decoder.input_colorspace() != Some(ColorSpace::Luma);
    let size = [usize::from(info.height), usize::from(info.width)];
    Ok(Header { size, colour })
}

fn jpeg(bytes: &[u8], budget: &Budget) -> Result<Pixels, Wrong> {
    let header = jpeg_header(ZCursor::new(bytes))?;
    let Header { size, colour } = header;
    let pixels = size[0] as u64 * size[1] as u64;
    plausible(size, bytes.len() as u64, JPEG_PIXELS_PER_BYTE)?;
    budget.check(header.implied())?;
    let (space, channels) = if colour { (ColorSpace::RGB, 3) } else { (ColorSpace::Luma, 1) };
    if !ends(bytes) {
        return Err("it ends early".into());
    }
    // Strict: a truncated image filled with gray would pass as a sample.
    let options = DecoderOptions::default().jpeg_set_out_colorspace(space).set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let data = decoder.decode().map_err(wrong)?;
    if data.len() as u64 != pixels * channels as u64 {
        return Err("it has fewer pixels than it says".into());
    }
    Ok(Pixels { size, channels, data })
}

/// Whether the end marker comes after the last scan; otherwise the decoder would make up the rest.
fn ends(jpeg: &[u8]) -> bool {
    let scan = jpeg.windows(2).rposition(|marker| marker == [0xff, 0xda]).unwrap_or(0);
    jpeg.get(scan..).is_some_and(|scan| scan.windows(2).any(|marker| marker == [0xff, 0xd9]))
}

/// Drops transparency, and converts between gray and colour.
fn with_channels(pixels: Pixels, channels: usize) -> Result<Pixels, Wrong> {
    let have = pixels.channels.max(1);
    if have == channels {
        return Ok(pixels);
    }
    let mut data = Vec::new();
    reserve(&mut data, pixels.size[0] * pixels.size[1] * channels)?;
    for pixel in pixels.data.chunks_exact(have) {
        match (pixel, channels) {
            ([r, g, b, ..], 3) => data.extend_from_slice(&[*r, *g, *b]),
            // ITU-R 601, as in most programs.
            ([r, g, b, ..], _) => {
                let luma = 299 * u32::from(*r) + 587 * u32::from(*g) + 114 * u32::from(*b);
                data.push(((luma + 500) / 1000) as u8);
            }
            ([gray, ..], 3) => data.extend_from_slice(&[*gray; 3]),
            ([gray, ..], _) => data.push(*gray),
            ([], _) => {}
        }
    }
    Ok(Pixels { size: pixels.size, channels, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_added_and_dropped() {
        let pixels = |channels, data: &[u8]| Pixels { size: [1, 1], channels, data: data.to_vec() };
        for (have, data, channels, want) in [
            (1, &[9][..], 3, &[9, 9, 9][..]),
            (2, &[9, 255], 1, &[9]),
            (2, &[9, 255], 3, &[9, 9, 9]),
            (4, &[1, 2, 3, 0], 3, &[1, 2, 3]),
            (3, &[255, 255, 255], 1, &[255]),
            (3, &[1, 2, 3], 3, &[1, 2, 3]),
        ] {
            assert_eq!(with_channels(pixels(have, data), channels).unwrap(), pixels(channels, want));
        }
    }
}
