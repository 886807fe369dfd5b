//! Asking a store over its socket.

use crate::failure::Failure;
use anyhow::{Context, anyhow, bail};
use bytes::{Buf, BytesMut};
use phalanx_resp::{Reply, ReplyParser, ReplyProgress, ReplyQueue, Version};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends commands to the store at an address, after the password if there is one; gives the last reply.
pub(super) async fn ask(address: &str, password: Option<&str>, command: &[&str]) -> Result<Reply, Failure> {
    let asked = timeout(PATIENCE, exchange(address, password, command));
    let reply = asked.await.map_err(|_elapsed| anyhow!("the store did not answer within 10 seconds"));
    let reply =
        reply.and_then(|reply| reply).with_context(|| format!("could not ask the store at {address}"));
    let reply =
        reply.map_err(|error| Failure::infrastructure(error).hint("`phalanx store serve` starts one"))?;
    match reply {
        Reply::Error(text) => {
            let error = anyhow!("the store refused: {}", String::from_utf8_lossy(&text));
            Err(Failure::usage(error).hint("give the store's --password-file"))
        }
        reply => Ok(reply),
    }
}

async fn exchange(address: &str, password: Option<&str>, command: &[&str]) -> anyhow::Result<Reply> {
    let mut stream = TcpStream::connect(address).await?;
    let login = password.map(|password| vec!["AUTH", password]);
    let mut reply = Reply::Null;
    for words in login.into_iter().chain([command.to_vec()]) {
        let mut request = ReplyQueue::default();
        let words = words.into_iter().map(|word| Reply::bulk(word.to_owned())).collect();
        request.push(Reply::Array(words), Version::Resp2);
        stream.write_all_buf(&mut request.copy_to_bytes(request.remaining())).await?;
        reply = read_reply(&mut stream).await?;
        if matches!(reply, Reply::Error(_)) {
            break;
        }
    }
    Ok(reply)
}

async fn read_reply(stream: &mut TcpStream) -> anyhow::Result<Reply> {
    let mut parser = ReplyParser::default();
    let mut input = BytesMut::new();
    loop {
        if let ReplyProgress::Reply(reply) = parser.parse(&mut input)? {
            return Ok(reply);
        }
        let read = match parser.large() {
            Some(bulk) => stream.read_buf(&mut bulk.room()).await?,
            None => stream.read_buf(&mut input).await?,
        };
        if read == 0 {
            bail!("the connection was closed");
        }
    }
}
