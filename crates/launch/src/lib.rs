//! Starts the ranks of a program.
