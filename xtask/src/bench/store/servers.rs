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
    pub(super) ours: RunningServer,
    pub(super) redis: RunningServer,
}

/// A server that listens.
pub(super) struct RunningServer {
    pub(super) address: String,
    process: Started,
}

impl RunningServer {
    fn new(address: String, process: Started) -> anyhow::Result<Self> {
        listening(&address)?;
        Ok(Self { address, process })
    }

    /// The processor time that it has used, in seconds.
    pub(super) fn processor_time(&self) -> anyhow::Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.process.pid()))? {
            let spent = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanoseconds += spent.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }
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
        Ok(Self {
            ours: RunningServer::new(address, ours)?,
            redis: RunningServer::new(redis_address, redis)?,
        })
    }

    pub(super) fn ours(&self) -> &str {
        &self.ours.address
    }

    pub(super) fn redis(&self) -> &str {
        &self.redis.address
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
