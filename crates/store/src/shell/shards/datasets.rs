//! Datasets of lists that other nodes have: this node asks them what the datasets are, for its streams, and deletes them
//! when no reader uses them any more.

use super::{Transit, Upstreams, first};
use crate::core::{Effects, FoundTensor, NodeRequest, decode_names};
use crate::shell::hub::Hub;
use bytes::Bytes;
use phalanx_resp::{Reply, named_type};
use phalanx_streams::StreamWait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

/// How long a node is asked to wait for a dataset that is not all there, before it is asked again.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// How much longer its answer may take.
const GRACE: Duration = Duration::from_secs(5);
/// A node that cannot be asked is asked again after this time, or when the nodes are others.
const RETRY: Duration = Duration::from_millis(500);
/// The most connections that are kept for the next dataset.
const MOST_IDLE: usize = 16;
/// The most tensors of a dataset.
const MOST_TENSORS: usize = 1024;

fn word(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// What has been done, and what to go on with.
enum Done {
    Described(Upstreams),
    Deleted { part: u16 },
}

/// Carries out requests of streams to other nodes until the server ends.
pub(crate) async fn run(hub: Arc<Hub>, mut requests: UnboundedReceiver<NodeRequest>) {
    let mut idle: Vec<Upstreams> = Vec::new();
    let mut working: JoinSet<Done> = JoinSet::new();
    let mut unwanted: BTreeMap<u16, Vec<Bytes>> = BTreeMap::new();
    let mut deleting: BTreeSet<u16> = BTreeSet::new();
    loop {
        tokio::select! {
            () = hub.stopped() => return,
            Some(request) = requests.recv() => match request {
                NodeRequest::Describe { stream, base, part } => {
                    let upstreams = idle.pop().unwrap_or_default();
                    working.spawn(describe(hub.clone(), upstreams, Dataset { stream, base, part }));
                }
                NodeRequest::Delete { part, keys } => unwanted.entry(part).or_default().extend(keys),
            },
            Some(done) = working.join_next() => match done {
                Ok(Done::Described(upstreams)) if idle.len() < MOST_IDLE => idle.push(upstreams),
                Ok(Done::Described(_)) => {}
                Ok(Done::Deleted { part }) => {
                    deleting.remove(&part);
                }
                Err(failed) => tracing::error!(error = %failed, "a request to another node of the store ended"),
            },
        }
        let ready: Vec<u16> = unwanted.keys().filter(|part| !deleting.contains(part)).copied().collect();
        for part in ready {
            let Some(keys) = unwanted.remove(&part) else { continue };
            deleting.insert(part);
            working.spawn(delete(hub.clone(), part, keys));
        }
    }
}

#[derive(Debug)]
struct Dataset {
    stream: Bytes,
    base: Bytes,
    part: u16,
}

impl Dataset {
    fn key(&self, end: &str) -> Bytes {
        [&self.base[..], end.as_bytes()].concat().into()
    }

    fn text(&self) -> String {
        self.base.escape_ascii().to_string()
    }
}

/// Asks for a dataset until it is known or the stream does not wait for it any more.
async fn describe(hub: Arc<Hub>, mut upstreams: Upstreams, dataset: Dataset) -> Done {
    let mut effects = Effects::default();
    while hub.wants_description(&dataset.stream, &dataset.base) {
        let Some(shards) = hub.shards() else { break };
        shards.lend(&mut upstreams, Transit::new(hub.clone()));
        let asked = tokio::time::timeout(ONE_WAIT + GRACE, ask(&mut upstreams, &dataset)).await;
        let why = match asked {
            Ok(Ok(Some(tensors))) => {
                hub.described(&dataset.stream, &dataset.base, tensors, &mut effects);
                break;
            }
            Ok(Ok(None)) => StreamWait::DatasetIncomplete { dataset: dataset.text() },
            Ok(Err(reply)) => lost(shards.part(dataset.part), &dataset, &reason(&reply)),
            Err(_late) => {
                upstreams = Upstreams::default();
                lost(shards.part(dataset.part), &dataset, "its node does not answer")
            }
        };
        let is_lost = matches!(why, StreamWait::DatasetNode { .. });
        hub.undescribed(&dataset.stream, &dataset.base, why, &mut effects);
        if is_lost {
            let _changed_or_late = tokio::time::timeout(RETRY, shards.changed()).await;
        }
    }
    drop(upstreams.take_transit());
    Done::Described(upstreams)
}

fn lost(part: String, dataset: &Dataset, detail: &str) -> StreamWait {
    StreamWait::DatasetNode { dataset: dataset.text(), part, detail: detail.to_owned() }
}

fn reason(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => {
            let text = String::from_utf8_lossy(text);
            text.strip_prefix("CLUSTERDOWN ").unwrap_or(&text).to_owned()
        }
        _ => "its node gave no answer".to_owned(),
    }
}

/// The tensors of a dataset; `None` if it is not all there in time.
async fn ask(upstreams: &mut Upstreams, dataset: &Dataset) -> Result<Option<Vec<FoundTensor>>, Reply> {
    let meta = dataset.key(".meta");
    let ms = Bytes::from(ONE_WAIT.as_millis().to_string());
    let wait = vec![word("PHALANX.WAIT"), ms, word("FIELD"), meta.clone(), word(".COMPLETE")];
    if checked(first(upstreams.call(dataset.part, vec![wait], false).await?)?)? != Reply::Integer(1) {
        return Ok(None);
    }
    let read = vec![word("HGET"), meta, word(".tensor_names")];
    let Reply::Bulk(names) = checked(first(upstreams.call(dataset.part, vec![read], true).await?)?)? else {
        return Ok(None);
    };
    let names = decode_names(&names).filter(|names| names.len() <= MOST_TENSORS);
    let names = names.ok_or_else(|| Reply::error("the names of its tensors cannot be read"))?;
    let read = |name: &String| vec![word("AI.TENSORGET"), dataset.key(&format!(".{name}")), word("META")];
    let commands = names.iter().map(read).collect();
    let found = upstreams.call(dataset.part, commands, true).await?;
    let tensors = names.iter().zip(found).map(|(name, reply)| described(name, checked(reply)?));
    tensors.collect::<Result<Vec<_>, Reply>>().map(Some)
}

fn checked(reply: Reply) -> Result<Reply, Reply> {
    if matches!(reply, Reply::Error(_)) { Err(reply) } else { Ok(reply) }
}

/// A tensor as `AI.TENSORGET … META` describes it.
fn described(name: &str, reply: Reply) -> Result<FoundTensor, Reply> {
    let unreadable = || Reply::error("the description of a tensor cannot be read");
    let Reply::Array(items) = reply else { return Err(unreadable()) };
    let [_, Reply::Bulk(dtype), _, Reply::Array(shape)] = &items[..] else { return Err(unreadable()) };
    let dtype = named_type(dtype).ok_or_else(unreadable)?;
    let len = |len: &Reply| match len {
        Reply::Integer(len) => u64::try_from(*len).ok(),
        _ => None,
    };
    let shape: Option<Vec<u64>> = shape.iter().map(len).collect();
    Ok(FoundTensor::new(name, dtype, &shape.ok_or_else(unreadable)?))
}

/// Deletes keys of another node, however long that takes.
async fn delete(hub: Arc<Hub>, part: u16, keys: Vec<Bytes>) -> Done {
    let mut upstreams = Upstreams::default();
    let command: Vec<Bytes> = std::iter::once(word("UNLINK")).chain(keys).collect();
    while let Some(shards) = hub.shards() {
        shards.lend(&mut upstreams, Transit::new(hub.clone()));
        let deleted = upstreams.call(part, vec![command.clone()], true).await;
        if deleted.and_then(first).and_then(checked).is_ok() {
            break;
        }
        let _changed_or_late = tokio::time::timeout(RETRY, shards.changed()).await;
    }
    Done::Deleted { part }
}
