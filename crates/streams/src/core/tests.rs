//! Whole command lists for single events.

mod bench;
mod memory;
mod passes;
mod recovery;
mod runs;
mod trainers;
mod uploads;
