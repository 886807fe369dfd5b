//! Journal, snapshots, values and spill on real files: killed processes, full disks, damaged bytes, random operations.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod damage;
mod full_disk;
mod journal;
mod kill;
mod random;
mod spill;
mod table;
