//! Collectives for a program's own framework: operations of ranks in any order, matched by name.
mod core;
