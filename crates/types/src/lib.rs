//! Basic types of all other crates: ids, units, time, tensors, resources, seeds.
//!
//! Plain data without IO: no sockets, clocks or threads.

mod batch_part;
mod class;
mod id;
mod nearest;
mod outbox;
mod parcel;
mod resources;
#[cfg(feature = "safetensors")]
mod safetensors_types;
mod seed;
mod size;
mod tensor;
mod time;

pub use batch_part::BatchPart;
pub use class::{Class, with_causes};
pub use id::{
    DomainName, Epoch, HostName, IdError, Incarnation, JobId, LeaseId, NodeId, ProducerId, ReaderId, RunId,
    SessionId, TrainerId, UploadSequence,
};
pub use nearest::nearest;
pub use outbox::Outbox;
pub use parcel::{Parcel, ParcelHead, PartError, TensorHead};
pub use resources::{Device, Host, Needs, Resources};
pub use seed::Seed;
pub use size::{ByteSize, ParseSizeError};
pub use tensor::{DType, Tensor, TensorError};
pub use time::Time;
