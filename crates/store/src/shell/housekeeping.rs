use super::hub::Hub;
use crate::core::Effects;
use std::time::Duration;
use tokio::time::timeout;

/// Clients have their turn between two steps of removing many keys.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Longer pauses are cut, so that no time overflows.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Ends keys and waits at their time, until the server ends.
pub(crate) async fn run(hub: &Hub) {
    let mut effects = Effects::default();
    loop {
        let pause = hub.tick(&mut effects).unwrap_or(LONGEST_PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        tokio::select! {
            _earlier = timeout(pause, hub.rearmed()) => {}
            () = hub.stopped() => return,
        }
    }
}
