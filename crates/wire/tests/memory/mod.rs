//! How much memory decoding may hold.

use phalanx_testkit::Counting;
pub(crate) use phalanx_testkit::peak_of;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most that decoding `len` bytes may hold.
///
/// A list grows with the elements that came: an empty name is one byte on the wire and 24 in
/// memory, up to twice that in a list just doubled, and the old list is there until the new one is
/// filled. Before the elements come, a list that claims no more of them than bytes are left gets
/// room for them at once, but at most for 1 MiB; lists lie at most four deep in each other.
pub(crate) fn allowance(len: usize) -> usize {
    80 * len + (256 * len).min(4 << 20) + 1024
}
