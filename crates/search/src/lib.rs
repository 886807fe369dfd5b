//! Architecture search: candidates of a space are trained, partially at first, and the best of several objectives found.
//!
//! [`core`] decides, without clock, files or threads: which candidates there are ([`core::space`]), what a template of a
//! run file makes of one ([`core::template`]), which results are on the front ([`core::pareto`]), what is tried next
//! ([`core::algorithm`]), and which trial is trained how far ([`core::control`]).

pub mod core;
