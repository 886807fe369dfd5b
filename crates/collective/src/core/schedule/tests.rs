//! All ranks' programs, run against each other in memory: messages in pieces of any size, in any order of events.

mod all_reduce;
mod machine;
mod moves;
