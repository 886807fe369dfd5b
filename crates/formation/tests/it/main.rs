//! Tests of plans: their properties, their reasons, their distance from the best.

mod behaviour;
mod brute;
mod large;
mod layers;
mod optimum;
mod patience;
mod pool_files;
mod random;
mod reasons;
mod shortfalls;
mod valid;
