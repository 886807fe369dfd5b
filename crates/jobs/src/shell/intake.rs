//! Large payloads and solutions from peers: fetched while together they fit the memory of this node.

use phalanx_fabric::{BlobId, Fabric, FetchError, Peer};
use phalanx_types::{ByteSize, Parcel, ParcelHead, PartError};
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Fetches take turns by multiples of this many bytes.
const UNIT: u64 = 64 << 10;

/// Why a parcel was not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntakeError {
    #[error("its description is of more bytes than there can be")]
    Impossible,
    #[error("it has {len}, and this node has {most} of memory for it")]
    TooLarge { len: ByteSize, most: ByteSize },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Part(#[from] PartError),
}

/// Fetches parcels within the memory that the node may use: its `--memory`, or that of the machine.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    fabric: Fabric,
    most: u64,
    units: Arc<Semaphore>,
}

impl Intake {
    pub(super) fn new(fabric: Fabric) -> Self {
        let own = fabric.nodes().into_iter().find(|node| node.id == *fabric.id());
        let settled = own.map_or(0, |node| node.resources.memory.0);
        let most = if settled > 0 { settled } else { memory_of_machine() };
        let units = usize::try_from(most.div_ceil(UNIT)).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { fabric, most, units: Arc::new(Semaphore::new(units)) }
    }

    /// Fetches a parcel; waits while others that are being fetched leave no room for it.
    pub(super) async fn fetch(
        &self,
        peer: &Peer,
        head: ParcelHead,
        blob: BlobId,
    ) -> Result<Parcel, IntakeError> {
        let len = check(&head, self.most)?;
        let _room = self.room(len).await;
        let body = self.fabric.fetch_pieces(peer, blob, len).await?;
        Ok(Parcel::from_pieces(head, body)?)
    }

    async fn room(&self, len: u64) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.units.acquire_many(units).await.ok()
    }
}

/// The bytes of a parcel, if the node may fetch that many.
fn check(head: &ParcelHead, most: u64) -> Result<u64, IntakeError> {
    let len = head.body_len().ok_or(IntakeError::Impossible)?;
    match len <= most {
        true => Ok(len),
        false => Err(IntakeError::TooLarge { len: ByteSize(len), most: ByteSize(most) }),
    }
}

fn memory_of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_more_than_the_memory_is_refused_before_anything_is_fetched() {
        let head = |bytes_len| ParcelHead { bytes_len, tensors: Vec::new() };
        assert_eq!(check(&head(100), 100).unwrap(), 100);
        assert!(matches!(check(&head(101), 100), Err(IntakeError::TooLarge { .. })));
        assert!(matches!(check(&head(u64::MAX), 1 << 40), Err(IntakeError::TooLarge { .. })));
        assert!(memory_of_machine() > 1 << 20);
    }
}
