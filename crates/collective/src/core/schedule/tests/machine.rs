//! Ranks that pass messages in memory.

use super::super::{Arithmetic, Memory, Program, Progress, Step, Then};
use crate::core::words::Reduction;
use phalanx_types::DType;
use std::collections::{BTreeMap, VecDeque};

/// Pseudo-random numbers from a seed.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end
    }
}

pub(super) const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Average, Reduction::Min, Reduction::Max, Reduction::Product];

pub(super) const DTYPES: [DType; 7] =
    [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U8];

/// Bytes aligned for every type.
pub(super) struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl Aligned {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut aligned = Self { words: vec![0; bytes.len().div_ceil(8)], length: bytes.len() };
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}

/// Values whose sums and products depend on their order, without overflow for up to 9 ranks.
pub(super) fn values(dtype: DType, n: usize, seed: usize) -> Vec<u8> {
    let mut draws = Draws(seed as u64 * 7919 + 1);
    let mut bytes = Vec::new();
    for _ in 0..n {
        let float = 0.5 + draws.below(1000) as f32 / 777.0;
        let integer = draws.below(7) as i32 - 3;
        match dtype {
            DType::F32 => bytes.extend(float.to_ne_bytes()),
            DType::F64 => bytes.extend(f64::from(float).to_ne_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f32(float).to_ne_bytes()),
            DType::Bf16 => bytes.extend(half::bf16::from_f32(float).to_ne_bytes()),
            DType::I32 => bytes.extend(integer.to_ne_bytes()),
            DType::I64 => bytes.extend(i64::from(integer).to_ne_bytes()),
            _ => bytes.push(integer.unsigned_abs() as u8),
        }
    }
    bytes
}

/// The program and memory of one rank.
pub(super) struct Rank {
    pub(super) program: Program,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

struct Seated<'a> {
    progress: Progress<'a>,
    memory: Memory<'a>,
    /// Bytes of the current receive that are not combined yet.
    held: Vec<u8>,
}

type Wires = BTreeMap<(usize, usize), VecDeque<u8>>;

/// Runs all programs and returns all outputs.
///
/// # Panics
/// No rank can proceed though not all are finished, or messages are left over.
pub(super) fn run(ranks: Vec<Rank>, dtype: DType, reduction: Reduction, seed: u64) -> Vec<Vec<u8>> {
    let count = ranks.len();
    let arithmetic = Arithmetic { dtype, reduction, ranks: count };
    let inputs: Vec<_> = ranks.iter().map(|rank| Aligned::new(&rank.input)).collect();
    let mut outputs: Vec<_> = ranks.iter().map(|rank| Aligned::new(&rank.output)).collect();
    let mut scratches: Vec<_> =
        ranks.iter().map(|rank| Aligned::new(&vec![0xaa; rank.program.scratch * dtype.size()])).collect();
    let memories = inputs.iter().zip(&mut outputs).zip(&mut scratches).map(|((input, output), scratch)| {
        Memory { input: input.bytes(), output: output.bytes_mut(), scratch: scratch.bytes_mut(), arithmetic }
    });
    let mut seated: Vec<_> = memories
        .zip(&ranks)
        .map(|(memory, rank)| Seated {
            progress: Progress::new(&rank.program, dtype.size()),
            memory,
            held: Vec::new(),
        })
        .collect();
    let mut wires = Wires::new();
    let mut draws = Draws(seed);
    let mut idle = 0;
    while !seated.iter().all(|rank| rank.progress.finished()) {
        let rank = draws.below(count);
        let went = if draws.below(2) == 0 {
            send(rank, &mut seated[rank], &mut wires, &mut draws)
        } else {
            turn(rank, &mut seated[rank], &mut wires, &mut draws)
        };
        idle = if went { 0 } else { idle + 1 };
        assert!(idle < 10_000, "no rank can go on");
    }
    assert!(wires.values().all(VecDeque::is_empty), "a message was not received");
    drop(seated);
    outputs.iter().map(|output| output.bytes().to_vec()).collect()
}

fn send(own: usize, rank: &mut Seated<'_>, wires: &mut Wires, draws: &mut Draws) -> bool {
    if rank.progress.targets() == 0 {
        return false;
    }
    let target = draws.below(rank.progress.targets());
    let Some((to, step)) = rank.progress.send(target) else { return false };
    let range = rank.progress.sendable(step);
    let take = if range.is_empty() { 0 } else { 1 + draws.below(range.len()) };
    let area = rank.progress.area(step);
    wires.entry((own, to)).or_default().extend(rank.memory.read(area, range.start..range.start + take));
    rank.progress.did(step, take);
    let complete = rank.progress.left(step).is_empty();
    if complete {
        rank.progress.complete_send(target);
    }
    complete || take > 0
}

fn turn(own: usize, rank: &mut Seated<'_>, wires: &mut Wires, draws: &mut Draws) -> bool {
    let Some((index, step)) = rank.progress.turn() else { return false };
    let room = rank.progress.writable();
    let mut went = false;
    match step {
        Step::Send { .. } => unreachable!(),
        Step::Copy { from, into } => {
            if room != rank.progress.left(index) {
                return false;
            }
            rank.memory.copy(from, into);
            rank.progress.did(index, room.len());
        }
        Step::Combine { into, other, last } => {
            if room != rank.progress.left(index) {
                return false;
            }
            let start = rank.memory.bytes(&other.range).start;
            let length = room.len();
            rank.memory.combine((into.area, room), (other.area, start), *last);
            rank.progress.did(index, length);
        }
        Step::Receive { from, into, then } => {
            let wire = wires.entry((*from, own)).or_default();
            let most = wire.len().min(room.len() - rank.held.len());
            if most > 0 {
                rank.held.extend(wire.drain(..1 + draws.below(most)));
                went = true;
            }
            let size = rank.memory.arithmetic.dtype.size();
            let whole = rank.held.len() - rank.held.len() % size;
            let block = Aligned::new(&rank.held.drain(..whole).collect::<Vec<_>>());
            let place = room.start..room.start + whole;
            match then {
                Then::Combine { own, last } if own == into => {
                    rank.memory.combine_block((into.area, place), block.bytes(), *last);
                }
                Then::Combine { own, last } => {
                    let offset = room.start - rank.memory.bytes(&into.range).start;
                    let other = rank.memory.bytes(&own.range).start + offset;
                    rank.memory.write(into.area, place.clone()).copy_from_slice(block.bytes());
                    rank.memory.combine((into.area, place), (own.area, other), *last);
                }
                Then::Store => rank.memory.write(into.area, place).copy_from_slice(block.bytes()),
            }
            rank.progress.did(index, whole);
        }
    }
    let complete = rank.progress.left(index).is_empty();
    if complete {
        rank.progress.complete_turn();
    }
    complete || went
}
