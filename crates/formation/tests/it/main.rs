//! Plans: what they are, what they say, how near they come to the best.

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
