//! Ways to spoil a frame.

use phalanx_wire::frame::{FrameKind, HEADER_LEN};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg32;

/// No input grows beyond this, so that a run takes its time for many small ones.
const MAX_LEN: usize = 16 << 10;

/// Bytes at the edges of the encoding: of varints, tags, booleans and text.
const BYTES: [u8; 9] = [0x00, 0x01, 0x02, 0x7f, 0x80, 0x81, 0xc0, 0xfe, 0xff];

/// Varints that overflow something, or try to.
const VARINTS: [&[u8]; 7] = [
    &[0x80, 0x00],
    &[0xff, 0x7f],
    &[0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
];

/// Spoils one of the `corpus` a few times over.
pub(crate) fn spoil(rng: &mut Pcg32, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = any(rng, corpus).to_vec();
    // Often just once: of what is spoilt more, little is still understood.
    for _ in 0..*[1, 1, 2, 4].choose(rng).expect("not empty") {
        once(rng, &mut input, corpus);
    }
    input.truncate(MAX_LEN);
    // A frame whose length is wrong never gets to be decoded.
    if rng.random_bool(0.75) {
        set_len(&mut input, None);
    }
    input
}

fn once(rng: &mut Pcg32, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.random_range(0..=input.len());
    let until = rng.random_range(at..=input.len().min(at + 64));
    match rng.random_range(0..12) {
        0 | 1 => set(input, at, |byte| byte ^ 1 << rng.random_range(0..8)),
        2 => set(input, at, |_| *BYTES.choose(rng).expect("not empty")),
        3 => input.truncate(at),
        4 => insert(input, at, until, &random_bytes(rng, 16)),
        5 => insert(input, at, at, &vec![*BYTES.choose(rng).expect("not empty"); rng.random_range(1..512)]),
        6 => insert(input, at, until, &[]),
        7 => {
            let copy = input.get(at..until).unwrap_or_default().to_vec();
            insert(input, at, at, &copy);
        }
        8 => {
            let other = any(rng, corpus);
            let from = rng.random_range(0..=other.len());
            insert(input, at, input.len(), other.get(from..).unwrap_or_default());
        }
        9 => input.extend_from_slice(any(rng, corpus)),
        10 => {
            let until = rng.random_range(at..=input.len().min(at + 2));
            insert(input, at, until, VARINTS.choose(rng).expect("not empty"));
        }
        _ => header(rng, input),
    }
}

fn any<'a>(rng: &mut Pcg32, corpus: &'a [Vec<u8>]) -> &'a [u8] {
    corpus.choose(rng).expect("the corpus is not empty")
}

fn set(input: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = change(*byte);
    }
}

/// Puts `bytes` in the place of a range.
fn insert(input: &mut Vec<u8>, at: usize, until: usize, bytes: &[u8]) {
    input.splice(at..until, bytes.iter().copied());
}

fn random_bytes(rng: &mut Pcg32, max: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(0..=max)];
    rng.fill(&mut bytes[..]);
    bytes
}

/// Changes the length or the kind.
fn header(rng: &mut Pcg32, input: &mut [u8]) {
    let body = input.len().saturating_sub(HEADER_LEN) as u32;
    let kind = *FrameKind::ALL.choose(rng).expect("not empty");
    let ceiling = kind.max_len() as u32;
    match rng.random_range(0..6) {
        0 => set_len(input, Some(body.wrapping_sub(1))),
        1 => set_len(input, Some(body + 1)),
        2 => set_len(input, Some(ceiling + rng.random_range(0..=1))),
        3 => set_len(input, Some(rng.random())),
        4 => set(input, HEADER_LEN - 1, |_| rng.random()),
        _ => set(input, HEADER_LEN - 1, |_| kind as u8),
    }
}

/// Writes a length into the header; without one, that of the body.
fn set_len(input: &mut [u8], len: Option<u32>) {
    let body = input.len().saturating_sub(HEADER_LEN) as u32;
    if let Some(prefix) = input.first_chunk_mut() {
        *prefix = len.unwrap_or(body).to_le_bytes();
    }
}
