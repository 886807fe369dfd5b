//! Throws spoilt and cut streams at both parsers, and compares them with an independent one.
//!
//! Deterministic: an input depends on its seed alone, and a failure names it. `PHALANX_FUZZ_ITERATIONS` asks for a
//! longer run, `PHALANX_FUZZ_SEED` for one that starts elsewhere.
//!
//! Nothing may panic, the result must not depend on where the stream is cut, and the memory taken must be in proportion
//! to the bytes that came.

mod inputs;

use bytes::{Bytes, BytesMut};
use inputs::{REPLIES, REQUESTS, spoil};
use phalanx_resp::{ProtocolError, Reply, ReplyParser, ReplyProgress, RequestParser, RequestProgress};
use phalanx_testkit::{Counting, peak_of};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use redis_protocol::resp2::decode::decode_bytes as decode2;
use redis_protocol::resp2::types::BytesFrame as Frame2;
use redis_protocol::resp3::decode::complete::decode_bytes as decode3;
use redis_protocol::resp3::types::BytesFrame as Frame3;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static COUNTING: Counting = Counting;

const ITERATIONS: u64 = 100_000;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect(name))
}

/// The most that parsing `len` bytes may hold: an argument of one byte takes 7 on the wire and 32 in memory, a list
/// just doubled twice that; an announced value has room reserved ahead of it only after its first byte came.
fn allowance(len: usize) -> usize {
    200 * len + phalanx_resp::AHEAD + (64 << 10)
}

type Requests = (Vec<Vec<Bytes>>, Option<ProtocolError>);

/// Parses a stream that comes in the pieces `next` chooses.
fn requests(input: &[u8], mut next: impl FnMut(usize) -> usize) -> Requests {
    let mut parser = RequestParser::default();
    let (mut buffer, mut found, mut rest) = (BytesMut::new(), Vec::new(), input);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next(rest.len()));
        rest = after;
        buffer.extend_from_slice(piece);
        loop {
            match parser.parse(&mut buffer) {
                Ok(RequestProgress::Request) => found.push(parser.args().to_vec()),
                Ok(RequestProgress::Announced { .. }) => {}
                Ok(RequestProgress::More | RequestProgress::Large) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

type Replies = (Vec<Reply>, Option<ProtocolError>);

fn replies(input: &[u8], mut next: impl FnMut(usize) -> usize) -> Replies {
    let mut parser = ReplyParser::default();
    let (mut buffer, mut found, mut rest) = (BytesMut::new(), Vec::new(), input);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next(rest.len()));
        rest = after;
        buffer.extend_from_slice(piece);
        loop {
            match parser.parse(&mut buffer) {
                Ok(ReplyProgress::Reply(reply)) => found.push(reply),
                Ok(ReplyProgress::More | ReplyProgress::Large) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// What the other parser makes of the next request; none when it is no array of bulk strings.
fn other_request(input: &Bytes) -> Option<(Vec<Bytes>, usize)> {
    let (frame, used) = decode2(input).ok()??;
    let Frame2::Array(items) = frame else { return None };
    let args = items.into_iter().map(|item| match item {
        Frame2::BulkString(data) => Some(data),
        _ => None,
    });
    Some((args.collect::<Option<_>>()?, used))
}

/// Every request that the other parser sees at the start of the stream, we see, too.
fn compare_requests(input: &[u8], ours: &Requests) {
    let mut rest = Bytes::copy_from_slice(input);
    let mut expected = Vec::new();
    while let Some((args, used)) = other_request(&rest) {
        // Numbers that Redis does not take, such as +1 or 01, end the comparison.
        if plain(rest.get(..used).unwrap_or_default()) {
            if !args.is_empty() {
                expected.push(args);
            }
        } else {
            break;
        }
        rest = rest.slice(used..);
    }
    assert_eq!(ours.0.get(..expected.len()), Some(&expected[..]));
}

/// Whether all lengths and line ends are written as Redis wants them.
fn plain(frame: &[u8]) -> bool {
    let header = |line: &[u8]| {
        let digits = line.get(1..).unwrap_or_default();
        let text = std::str::from_utf8(digits).unwrap_or("x");
        text.parse::<i64>().is_ok_and(|value| value.to_string() == text)
    };
    let mut rest = frame;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = &rest[..end];
        if !header(line) {
            return false;
        }
        rest = &rest[end + 2..];
        if line.starts_with(b"$") {
            let len: usize = std::str::from_utf8(&line[1..]).map_or(0, |text| text.parse().unwrap_or(0));
            // They do not look at the line end after a bulk string.
            if rest.get(len..len + 2) != Some(b"\r\n") {
                return false;
            }
            rest = &rest[len + 2..];
        }
    }
    true
}

/// A reply of theirs in our words; none for kinds that are told apart differently.
fn translated(frame: &Frame3) -> Option<Reply> {
    let all = |items: &[Frame3]| items.iter().map(translated).collect::<Option<Vec<_>>>();
    Some(match frame {
        Frame3::SimpleString { data, .. } => Reply::Simple(data.clone()),
        Frame3::SimpleError { data, .. } => Reply::Error(Bytes::copy_from_slice(data.as_bytes())),
        Frame3::BlobError { data, .. } => Reply::Error(data.clone()),
        Frame3::Number { data, .. } => Reply::Integer(*data),
        Frame3::BlobString { data, .. } => Reply::Bulk(data.clone()),
        Frame3::Boolean { data, .. } => Reply::Bool(*data),
        Frame3::Null => Reply::Null,
        Frame3::Array { data, .. } => Reply::Array(all(data)?),
        Frame3::Push { data, .. } => Reply::Push(all(data)?),
        Frame3::VerbatimString { data, .. } => Reply::Verbatim(data.clone()),
        _ => return None,
    })
}

fn compare_replies(input: &[u8], ours: &Replies) {
    let mut rest = Bytes::copy_from_slice(input);
    for reply in &ours.0 {
        let Ok(Some((frame, used))) = decode3(&rest) else { return };
        let Some(expected) = translated(&frame) else { return };
        // They have no null arrays, and take other numbers.
        let ours = if *reply == Reply::NullArray { Reply::Null } else { reply.clone() };
        assert_eq!(ours, expected);
        rest = rest.slice(used..);
    }
}

fn check(seed: u64) {
    let mut rng = Pcg32::seed_from_u64(seed);
    let longest = if rng.random_bool(0.5) { 4 } else { 512 };
    let input = spoil(&mut rng, REQUESTS);
    let (whole, peak) = peak_of(|| requests(&input, |left| left));
    assert!(peak <= allowance(input.len()), "{peak} bytes held for {}", input.len());
    assert_eq!(whole, requests(&input, |left| rng.random_range(1..=longest).min(left)));
    compare_requests(&input, &whole);

    let input = spoil(&mut rng, REPLIES);
    let (whole, peak) = peak_of(|| replies(&input, |left| left));
    assert!(peak <= allowance(input.len()), "{peak} bytes held for {}", input.len());
    let pieces = replies(&input, |left| rng.random_range(1..=longest).min(left));
    // NaN is not equal to itself.
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
    compare_replies(&input, &whole);
}

#[test]
fn spoilt_streams_are_refused_or_read_alike() {
    let first = number("PHALANX_FUZZ_SEED", 0);
    for seed in first..first + number("PHALANX_FUZZ_ITERATIONS", ITERATIONS) {
        let checked = catch_unwind(AssertUnwindSafe(|| check(seed)));
        assert!(checked.is_ok(), "failed: PHALANX_FUZZ_SEED={seed} PHALANX_FUZZ_ITERATIONS=1");
    }
}

#[test]
fn sound_streams_may_be_cut_at_every_place() {
    let all: Vec<u8> = REQUESTS.concat();
    let whole = requests(&all, |left| left);
    assert_eq!((whole.0.len(), whole.1), (REQUESTS.len() - 1, None));
    for cut in 1..all.len() {
        let mut first = Some(cut);
        assert_eq!(requests(&all, |left| first.take().unwrap_or(left).min(left)), whole, "cut at {cut}");
    }
    let all: Vec<u8> = REPLIES.concat();
    let whole = replies(&all, |left| left);
    assert_eq!((whole.0.len(), whole.1), (REPLIES.len(), None));
    for cut in 1..all.len() {
        let mut first = Some(cut);
        assert_eq!(replies(&all, |left| first.take().unwrap_or(left).min(left)), whole, "cut at {cut}");
    }
}
