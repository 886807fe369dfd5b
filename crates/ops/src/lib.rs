//! Collectives for a program's own framework: ranks issue operations in any order, and they are matched by name.
//!
//! ```text
//!   Ops::submit(name, signature, memory) ──► engine ──► leader (rank 0): ready on all ranks? fuse, put into one order
//!   OpHandle::wait ◄── result ◄── engine: phalanx_collective::Group ◄── Run, in the leader's order
//! ```
//! The first time an operation is announced with its name and signature; then it has a number. Ranks of one host talk
//! to the leader through rings in shared memory, so that agreement about a known operation takes about a microsecond.
//! A thread that waits drives the engine itself; a background thread does so when none waits. A third one watches the
//! streams between ranks: one that closes ends every operation on every rank with [`OpsError::PeerLost`].
//!
//! ```
//! use phalanx_ops::{Meeting, OpKind, OpSignature, Ops, OpsOptions, Reduction, TensorSpec, DType};
//!
//! let ops = Ops::init(Meeting::Alone, OpsOptions::default())?;
//! let mut values = [1.0_f32, 2.0];
//! let sum = OpKind::AllReduce { reduction: Reduction::Sum };
//! let signature = OpSignature::new(sum, TensorSpec::new(DType::F32, [2])).scaled(1.0, 3.0);
//! ops.run_on("gradient", signature, bytemuck::cast_slice_mut(&mut values))?;
//! assert_eq!(values, [3.0, 6.0]);
//! # Ok::<(), phalanx_ops::OpsError>(())
//! ```

mod core;
mod error;
mod rendezvous;
mod shell;

pub use crate::core::failure::OpFailure;
pub use crate::core::gathering::Refusal;
pub use crate::core::signature::{Difference, OpKind, OpSignature, SetId, TensorSpec, WireFormat};
pub use crate::core::tuner::TunedSample;
pub use crate::error::OpsError;
pub use crate::rendezvous::{Meeting, RendezvousError, RendezvousServer, Secret};
pub use crate::shell::{OpHandle, Operation, Ops, OpsOptions, Outcome, OutputTensor, RawTensor, Stall};
pub use phalanx_collective::Reduction;
pub use phalanx_types::DType;
