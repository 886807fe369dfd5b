use crate::background::Started;
use crate::tool::tool;
use anyhow::bail;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Only a server that does not start makes this pass.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both servers; they end with this value.
pub(super) struct Servers {
    ours: (String, Started),
    redis: (String, Started),
}

impl Servers {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let (port, redis_port) = (free_port()?, free_port()?);
        let address = format!("127.0.0.1:{port}");
        let words = ["--output", "quiet", "store", "serve", "--bind", &address];
        let ours = tool(program, &words).start()?;
        // As a store of tensors in memory is run: nothing is saved.
        let words =
            ["--port", &redis_port.to_string(), "--save", "", "--appendonly", "no", "--loglevel", "warning"];
        let redis = tool("redis-server", &words).start()?;
        let redis_address = format!("127.0.0.1:{redis_port}");
        listening(&address)?;
        listening(&redis_address)?;
        Ok(Self { ours: (address, ours), redis: (redis_address, redis) })
    }

    pub(super) fn ours(&self) -> &str {
        &self.ours.0
    }

    pub(super) fn redis(&self) -> &str {
        &self.redis.0
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Returns when there is a server.
fn listening(address: &str) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > end {
            bail!("no server listens at {address}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
