// A simulation puts its state into a store while another thread waits for it.

use phalanx::model::Tensor;
use phalanx::store::{Server, ServerConfig, Store, StoreOptions};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bind = Some(([127, 0, 0, 1], 0).into());
    let server = Server::start(ServerConfig { bind, ..ServerConfig::default() }).await?;
    let address = server.address().ok_or("the store has no address")?.to_string();

    let reader_address = address.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let store = Store::connect(&reader_address, StoreOptions::default())?;
        store.wait("velocity", Duration::from_secs(30))?;
        store.get("velocity")
    });
    let writer = tokio::task::spawn_blocking(move || {
        let velocity: Vec<f32> = (0..100_000).map(|i| (i as f32 / 1000.0).sin()).collect();
        let store = Store::connect(&address, StoreOptions::default())?;
        store.put(
            "velocity",
            &Tensor::from_f32(vec![100, 1000], &velocity).expect("as many as the shape says"),
        )
    });
    writer.await??;
    let velocity = reader.await??;
    assert_eq!(velocity.shape(), [100, 1000]);
    server.shutdown().await;
    Ok(())
}
