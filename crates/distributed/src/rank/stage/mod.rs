//! A node that holds one part of a model: a stage of a pipeline, among the stages of one or more replicas.
//!
//! ```text
//!   driver ──► worker: Prepare(layout), Give, Connect(start)
//!                 settle    own part of the state: what it holds, what others give, what the seed makes
//!                 session   one group, from its beginning to its end
//!                    step   forwards and backwards in the order of core::pipeline; then all vote, then all apply
//!                    flow   steps without a pause between, each with the parameters of its forward; then all vote
//!   prev ◄─ pipe ─► next    activations and their gradients
//!   rings                   the same parameters in other replicas
//!   serve                   what somebody asks the model meanwhile
//!   copies                  what neighbours keep of each other
//! ```

mod copies;
mod diagnose;
mod flow;
mod frame;
mod part;
mod pipe;
mod prepare;
mod rings;
mod serve;
mod session;
mod settle;
mod step;
#[cfg(test)]
mod tests;
mod validate;
mod word;
mod worker;

pub(crate) use part::names_of;
pub(super) use worker::run;
