//! Throws spoilt frames at the cutter of frames and at every decoder.
//!
//! Deterministic: an input depends on its seed and on the files in `golden/` and `tests/corpus/`
//! alone, and a failure names the seed. `PHALANX_FUZZ_ITERATIONS` asks for a longer run,
//! `PHALANX_FUZZ_SEED` for one that starts elsewhere.
//!
//! Nothing may panic, nothing may be read beyond its end, what decodes must encode to the same
//! message again, and the memory taken must be in proportion to the bytes that came.

mod decoders;
mod memory;
mod mutation;
mod stable;
mod vectors;

use bytes::BytesMut;
use phalanx_wire::frame::{self, Frame, FrameError, FrameKind, HEADER_LEN};
use phalanx_wire::handshake::{Purpose, check_preface};
use phalanx_wire::{VERSION, codec, fabric::FabricMessage};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const ITERATIONS: u64 = 200_000;

fn golden() -> BTreeMap<String, Vec<u8>> {
    vectors::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{VERSION}")))
}

/// The golden frames, what requests and replies among them carry, and the nasty ones made by hand.
fn corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<_> = golden().into_values().collect();
    let carried: Vec<_> = corpus.iter().filter_map(|frame| carried(frame)).collect();
    corpus.extend(carried);
    let nasty = vectors::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"));
    assert!(!nasty.is_empty(), "no corpus");
    corpus.extend(nasty.into_values());
    corpus
}

/// The body inside a request or reply, as if it had a frame of its own.
fn carried(frame: &[u8]) -> Option<Vec<u8>> {
    let body = match codec::decode(frame.get(HEADER_LEN..)?).ok()? {
        FabricMessage::Request { body, .. } | FabricMessage::Reply { result: Ok(body), .. } => body,
        _ => return None,
    };
    let len = (body.len() as u32).to_le_bytes();
    Some([&len[..], &[FrameKind::Fabric as u8], &body].concat())
}

/// What a stream was cut into.
#[derive(Debug, PartialEq)]
struct Cut {
    frames: Vec<Frame>,
    /// The error that ended it, or the bytes waiting for more.
    end: Result<usize, FrameError>,
}

/// Cuts a stream that comes in the pieces `next` chooses.
fn cut(input: &[u8], mut next: impl FnMut(usize) -> usize) -> Cut {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next(rest.len()));
        buffer.extend_from_slice(piece);
        rest = after;
        loop {
            match frame::take(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return Cut { frames, end: Err(error) },
            }
        }
    }
    Cut { frames, end: Ok(buffer.len()) }
}

/// Checks that the cuts do not depend on the pieces and that the frames are those of the input.
fn check_frames(input: &[u8], rng: &mut Pcg32) -> Vec<Frame> {
    let longest = if rng.random_bool(0.5) { 8 } else { 1024 };
    let (whole, peak) = memory::peak_of(|| cut(input, |left| left));
    assert!(peak <= memory::allowance(input.len()), "{peak} bytes held to cut {}", input.len());
    let pieces = cut(input, |left| rng.random_range(1..=longest).min(left));
    assert_eq!(whole, pieces);
    let mut rest = input;
    for Frame { kind, body } in &whole.frames {
        assert!(body.len() <= kind.max_len());
        let (taken, after) = rest.split_at(HEADER_LEN + body.len());
        assert_eq!(taken, [&(body.len() as u32).to_le_bytes()[..], &[*kind as u8], &body[..]].concat());
        rest = after;
    }
    check_end(&whole.end, rest);
    whole.frames
}

/// Checks why there is no further frame at the start of `rest`.
fn check_end(end: &Result<usize, FrameError>, rest: &[u8]) {
    let header = rest.first_chunk::<HEADER_LEN>();
    let Some([l0, l1, l2, l3, kind]) = header.copied() else {
        assert_eq!(end, &Ok(rest.len()));
        return;
    };
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let expected = match FrameKind::ALL.into_iter().find(|known| *known as u8 == kind) {
        None => Err(FrameError::UnknownKind(kind)),
        Some(kind) if len > kind.max_len() => Err(FrameError::TooLong { kind, len, max: kind.max_len() }),
        Some(_) => {
            assert!(HEADER_LEN + len > rest.len(), "a whole frame was left");
            Ok(rest.len())
        }
    };
    assert_eq!(end, &expected);
}

/// Everything that a peer's bytes go through.
fn feed(input: &[u8], rng: &mut Pcg32) {
    if let Some(preface) = input.first_chunk() {
        // Either answer will do; only a panic would not.
        drop(check_preface(*preface, Purpose::Node));
    }
    let frames = check_frames(input, rng);
    let body = input.get(HEADER_LEN..).unwrap_or_default();
    decoders::try_all(body);
    decoders::try_raw(input);
    for frame in frames.iter().filter(|frame| frame.body != body) {
        decoders::try_all(&frame.body);
    }
}

/// Feeds one input; when it fails, says how to see it again.
fn feed_loudly(input: &[u8], seed: u64) {
    let mut rng = Pcg32::seed_from_u64(seed);
    if catch_unwind(AssertUnwindSafe(|| feed(input, &mut rng))).is_err() {
        panic!(
            "failed on {}\nagain: PHALANX_FUZZ_SEED={seed} PHALANX_FUZZ_ITERATIONS=1",
            vectors::hex(input)
        );
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}"))
}

#[test]
fn spoilt_input_is_refused_or_understood_but_never_worse() {
    let corpus = corpus();
    for input in &corpus {
        feed_loudly(input, 0);
    }
    let first = number("PHALANX_FUZZ_SEED", 0);
    for seed in first..first.saturating_add(number("PHALANX_FUZZ_ITERATIONS", ITERATIONS)) {
        // One seed for one input, so that a failure needs none of the inputs before it.
        let input = mutation::spoil(&mut Pcg32::seed_from_u64(seed), &corpus);
        feed_loudly(&input, seed);
    }
}

#[test]
fn the_decoders_know_every_golden_message() {
    for (name, frame) in golden() {
        if name.starts_with("raw-") {
            assert!(decoders::is_raw(&name, &frame), "no decoder for {name}");
            continue;
        }
        let message = !name.starts_with("preface-") && name != "chunk";
        let known = decoders::try_all(frame.get(HEADER_LEN..).unwrap_or_default());
        assert!(!message || known > 0, "no decoder for {name}");
    }
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Bodies of about `len` bytes that make much of them: lists within lists that each claim as many
/// elements as bytes are left, and lists of what is shortest on the wire.
fn greedy(len: usize) -> Vec<Vec<u8>> {
    let many = varint(len);
    let zeros = vec![0; len + 16];
    // Known: a status without anything, its first list claiming the rest.
    let known: [&[u8]; 5] = [&[2], &many, b"\x01n\0\0\0\x01\0", &many, &zeros];
    let handles: [&[u8]; 5] = [&[2], &many, b"\x01n\0\0\0\x01\0\0\0", &many, &zeros];
    // Dispatch: offers > offers > tensors > shape.
    let offers: [&[u8]; 9] =
        [&[1, 0, 0, 0, 0, 0, 0, 0], &many, &[0, 0, 0], &many, &[0; 6], &many, &[0, 0], &many, &zeros];
    // Jobs: a job that failed on that many nodes.
    let jobs: [&[u8]; 5] = [&[0], &many, &[0, 0, 0, 0, 0, 4, 2, 0], &many, &zeros];
    // Join: that many kinds without a name.
    let kinds: [&[u8]; 4] = [&[0, 0, 0], &many, &vec![0; len], &[0; 7]];
    // Present: that many nodes with the shortest name there is.
    let names: [&[u8]; 3] = [&[0], &varint(len / 2), &b"\x01n".repeat(len / 2)];
    // Hello: that many relays without a name.
    let relays: [&[u8]; 5] =
        [b"\x01d\x01n\0\0\0", &varint(len / 2), &[1, 0].repeat(len / 2), &[0; 16], &[0; 33]];
    [
        known.concat(),
        handles.concat(),
        offers.concat(),
        jobs.concat(),
        kinds.concat(),
        names.concat(),
        relays.concat(),
    ]
    .into()
}

#[test]
fn lists_take_no_more_memory_than_their_bytes_account_for() {
    let sizes = [16, 500, 4 << 10, 20 << 10, 43_691, 64 << 10, 90_000, 300_000, 1 << 20];
    let mut understood = 0;
    for body in sizes.into_iter().flat_map(greedy) {
        understood += decoders::try_all(&body);
    }
    assert!(understood >= 3 * sizes.len(), "the lists that do not lie were not understood");
}
