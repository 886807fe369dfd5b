//! How many bytes a network would have carried.

use super::schedule::{Program, Seat, Step};
use super::words::Kind;

/// The bytes that a rank would send if its host had no shared memory and values went around a ring.
///
/// `bytes` is the size of the whole tensor for reductions and broadcasts, otherwise of the part that one rank exchanges
/// with another.
pub(crate) fn ring_bytes(kind: Kind, seat: Seat, bytes: usize) -> u64 {
    let Seat { rank, ranks } = seat;
    let (bytes, n, others) = (bytes as u128, ranks as u128, (ranks - 1) as u128);
    let sent = match kind {
        Kind::AllReduce => 2 * others * bytes / n,
        Kind::ReduceScatter => others * bytes / n,
        Kind::AllGather | Kind::AllToAll => others * bytes,
        Kind::Broadcast { root } if (rank + 1) % ranks == root as usize => 0,
        Kind::Reduce { root } | Kind::Gather { root } if rank == root as usize => 0,
        Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::Gather { .. } => bytes,
        Kind::Scatter { root } if rank == root as usize => others * bytes,
        Kind::Scatter { .. } | Kind::Barrier | Kind::Join => 0,
    };
    u64::try_from(sent).unwrap_or(u64::MAX)
}

/// The bytes that a program over elements of `element` bytes sends.
pub(crate) fn program_bytes(program: &Program, element: usize) -> u64 {
    let sent = |step: &Step| match step {
        Step::Send { span, .. } => (span.range.len() * element) as u64,
        _ => 0,
    };
    program.steps.iter().map(sent).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::schedule::{Area, all_reduce, broadcast, reduce};
    use crate::core::words::Algorithm;

    #[test]
    fn a_ring_sends_what_its_programs_send() {
        for ranks in 2..6 {
            for rank in 0..ranks {
                let (seat, n) = (Seat { rank, ranks }, 16 * ranks);
                let own = Area::Output;
                for (kind, program) in [
                    (Kind::AllReduce, all_reduce(Algorithm::Ring, seat, n, own)),
                    (Kind::Broadcast { root: 1 }, broadcast(Algorithm::Ring, seat, 1, n)),
                    (Kind::Reduce { root: 1 }, reduce(Algorithm::Ring, seat, 1, n, own)),
                ] {
                    assert_eq!(
                        ring_bytes(kind, seat, 4 * n),
                        program_bytes(&program, 4),
                        "{kind:?} {seat:?}"
                    );
                }
            }
        }
    }
}
