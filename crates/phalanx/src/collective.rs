//! What a group of ranks computes together: reductions, broadcasts, gathers.
//!
//! Ranks of one host share memory; ranks of different hosts are linked by sockets. All ranks end with the same bits.
//! [`in_process`] makes a group of threads; [`Group::prepare`] makes one end of a group of processes, whose
//! [`GroupEnd`]s the program passes around by itself.
//!
//! ```
//! use phalanx::collective::{Reduction, all_reduce_f32, in_process};
//!
//! let groups = in_process(3, 0)?;
//! std::thread::scope(|scope| {
//!     for mut group in groups {
//!         scope.spawn(move || {
//!             let mut data = [group.rank() as f32; 4];
//!             all_reduce_f32(&mut group, &mut data, Reduction::Sum, "ranks").unwrap();
//!             assert_eq!(data, [3.0; 4]);
//!         });
//!     }
//! });
//! # Ok::<(), phalanx::collective::CollectiveError>(())
//! ```

pub use phalanx_collective::{
    Algorithm, Background, CollectiveError, Compression, Feedback, Gathered, Group, GroupAborter,
    GroupBuffer, GroupEnd, GroupOptions, HostId, Kind, PreparedGroup, Reduction, Socket,
};

use phalanx_types::DType;

/// A group of threads of this process, one end for each. `room` is how many bytes their buffers will have together.
///
/// # Errors
/// There is not as much memory to share.
pub fn in_process(ranks: usize, room: usize) -> Result<Vec<Group>, CollectiveError> {
    let options = |rank| GroupOptions { rank, ranks, epoch: 1, room, share: true, cores: None, host: None };
    let ready: Vec<_> = (0..ranks).map(|rank| Group::prepare(options(rank))).collect::<Result<_, _>>()?;
    let (prepared, ends): (Vec<PreparedGroup>, Vec<GroupEnd>) = ready.into_iter().unzip();
    prepared.into_iter().map(|prepared| prepared.connect(&ends, Vec::new())).collect()
}

/// Combines numbers over all ranks; every rank's get the result.
///
/// # Errors
/// The group is over, or ranks call different things. Either ends the group.
pub fn all_reduce_f32(
    group: &mut Group,
    data: &mut [f32],
    reduction: Reduction,
    name: &str,
) -> Result<(), CollectiveError> {
    group.all_reduce(bytemuck::cast_slice_mut(data), DType::F32, reduction, name)
}
