//! Serves a store that is part of this program: `cargo run --example serve -- 127.0.0.1:6780 [/tmp/store.sock]`.

use phalanx_store::{Server, ServerConfig};
use phalanx_types::ByteSize;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let config = ServerConfig {
        bind: args.next().map(|bind| bind.parse()).transpose()?,
        unix: args.next().map(Into::into),
        memory: ByteSize::gib(8),
        ..ServerConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(config).await?;
        // A program uses its own store without a socket.
        server.client().execute(["SET", "greeting", "hello"]).await;
        server.stopped().await;
        server.shutdown().await;
        Ok(())
    })
}
