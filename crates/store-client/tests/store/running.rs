//! A server for tests of the client.

use phalanx_store::{Server, ServerConfig};
use phalanx_store_client::{Store, StoreOptions};
use std::sync::mpsc;
use tokio::sync::oneshot;

/// A server on a thread of its own.
pub(crate) struct Running {
    pub(crate) address: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::with(ServerConfig::default())
    }

    /// A server at an address that is known to be free.
    pub(crate) fn at(address: &str) -> Self {
        Self::bound(ServerConfig { bind: Some(address.parse().unwrap()), ..ServerConfig::default() })
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        Self::bound(ServerConfig { bind: Some("127.0.0.1:0".parse().unwrap()), ..config })
    }

    fn bound(config: ServerConfig) -> Self {
        let (told, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::start(config).await.unwrap();
                told.send(server.address().unwrap().to_string()).unwrap();
                let _asked = stopped.await;
                server.shutdown().await;
            });
        };
        let thread = Some(std::thread::spawn(body));
        Self { address: address.recv().unwrap(), stop: Some(stop), thread }
    }

    pub(crate) fn client(&self) -> Store {
        Store::connect(&self.address, StoreOptions::default()).unwrap()
    }

    /// A client as on another host.
    pub(crate) fn remote(&self) -> Store {
        let options = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
        Store::connect(&self.address, options).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }
}
