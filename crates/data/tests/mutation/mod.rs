//! Ways to corrupt a file.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg32;

/// The largest input, so that a run can try many.
const MAX_LEN: usize = 64 << 10;

/// Bytes at the edges of one encoding or another.
const BYTES: [u8; 12] = [0x00, 0x01, 0x02, 0x7f, 0x80, 0x81, 0xc0, 0xfe, 0xff, b'"', b',', b'\n'];

/// Numbers that overflow something, or try to.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Words that some parser treats in its own way.
const WORDS: [&[u8]; 12] = [
    b"nan",
    b"-inf",
    b"1e999",
    b"99999999999999999999",
    b"-1",
    b"True",
    b"'>f8'",
    b"(",
    b"{}",
    b"PK\x03\x04",
    b"PAR1",
    b"IDAT",
];

/// Corrupts one of the `corpus` a few times.
pub(crate) fn spoil(rng: &mut Pcg32, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = any(rng, corpus).to_vec();
    // Often just once: heavily corrupted files are rejected early.
    for _ in 0..*[1, 1, 2, 4, 8].choose(rng).expect("not empty") {
        once(rng, &mut input, corpus);
    }
    input.truncate(MAX_LEN);
    input
}

fn once(rng: &mut Pcg32, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.random_range(0..=input.len());
    let until = rng.random_range(at..=input.len().min(at + 64));
    match rng.random_range(0..12) {
        0..=2 => set(input, at, |byte| byte ^ 1 << rng.random_range(0..8)),
        3 => set(input, at, |_| *BYTES.choose(rng).expect("not empty")),
        4 => input.truncate(at),
        5 => insert(input, at, until, &random_bytes(rng, 16)),
        6 => insert(input, at, at, &vec![*BYTES.choose(rng).expect("not empty"); rng.random_range(1..512)]),
        7 => insert(input, at, until, &[]),
        8 => {
            let copy = input.get(at..until).unwrap_or_default().to_vec();
            insert(input, at, at, &copy);
        }
        9 => {
            let other = any(rng, corpus);
            let from = rng.random_range(0..=other.len());
            insert(input, at, input.len(), other.get(from..).unwrap_or_default());
        }
        10 => number(rng, input, at),
        _ => {
            let word = WORDS.choose(rng).expect("not empty");
            let until = input.len().min(at + if rng.random_bool(0.5) { word.len() } else { 0 });
            insert(input, at, until, word);
        }
    }
}

/// Writes a number over what is there, in either byte order.
fn number(rng: &mut Pcg32, input: &mut Vec<u8>, at: usize) {
    let number = *NUMBERS.choose(rng).expect("not empty");
    let width = *[1, 2, 4, 8].choose(rng).expect("not empty");
    let bytes = if rng.random_bool(0.5) {
        number.to_le_bytes()[..width].to_vec()
    } else {
        number.to_be_bytes()[8 - width..].to_vec()
    };
    let until = input.len().min(at + width);
    insert(input, at, until, &bytes);
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
