//! Sound streams, and ways to spoil them.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg32;

pub(crate) const REQUESTS: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"PING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\n\r\n*1\r\r\n",
    b"set a \"b c\\x00\" 'd'\r\n",
    b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    b"*0\r\n",
    b"*2\r\n$4\r\nECHO\r\n$20\r\n01234567890123456789\r\n",
    b"*5\r\n$12\r\nAI.TENSORSET\r\n$1\r\nt\r\n$5\r\nFLOAT\r\n$1\r\n1\r\n$4\r\nBLOB\r\n",
];

pub(crate) const REPLIES: &[&[u8]] = &[
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-12\r\n",
    b"$3\r\nabc\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*3\r\n:1\r\n*1\r\n+a\r\n$0\r\n\r\n",
    b"%1\r\n+k\r\n*0\r\n",
    b">2\r\n+message\r\n$1\r\nx\r\n",
    b"~1\r\n:1\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"_\r\n",
    b"(123456789012345678901234567890\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"!5\r\nERR x\r\n",
];

/// Pieces at the edges of the protocol.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"\n",
    b"*",
    b"$",
    b"-1",
    b"0",
    b"-0",
    b"+1",
    b"*1\r\n",
    b"$-1\r\n",
    b"$32768\r\n",
    b"$549755813888\r\n",
    b"$9223372036854775807\r\n",
    b"*1048576\r\n",
    b"*9223372036854775807\r\n",
    b"%4611686018427387904\r\n",
    b"|1\r\n+a\r\n+b\r\n",
    b"\"",
    b"'",
    b"\\x",
    b"\0",
    b"\xff\xfe",
];

/// Some of the corpus, spoilt a few times over.
pub(crate) fn spoil(rng: &mut Pcg32, corpus: &[&[u8]]) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..rng.random_range(1..6) {
        input.extend_from_slice(corpus.choose(rng).expect("not empty"));
    }
    for _ in 0..*[0, 1, 1, 2, 4].choose(rng).expect("not empty") {
        let at = rng.random_range(0..=input.len());
        let until = rng.random_range(at..=input.len().min(at + 16));
        match rng.random_range(0..6) {
            0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            1 => input.truncate(at),
            2 => drop(input.splice(at..until, [])),
            3 => {
                let copy = input[at..until].to_vec();
                input.splice(at..at, copy);
            }
            4 => input.extend(std::iter::repeat_n(b'a', rng.random_range(1..2000))),
            _ => {
                let piece = PIECES.choose(rng).expect("not empty");
                input.splice(at..until.min(at + 2), piece.iter().copied());
            }
        }
    }
    input
}
