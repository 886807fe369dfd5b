//! The tensor store: a client, and a server inside this process.
//!
//! Calls block on the calling thread, without the interpreter's lock: the client has no threads, so a process that was
//! forked can connect anew. Connecting and waiting look for Ctrl-C meanwhile, also while a put waits for room.

mod server;
mod streams;
mod values;

pub(crate) use server::StoreServer;
pub(crate) use streams::{StreamMember, StreamProducer, StreamRun};

use crate::arrays;
use crate::errors::Failure;
use crate::memory::Memory;
use crate::submitter::seconds;
use phalanx_store_client::{Interrupt, Interruption, Keys, Store, StoreError, StoreOptions};
use phalanx_types::Tensor;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use values::{DatasetParts, MetaParts, dataset_parts, metadata, python_reply};

/// How long a wait lasts before it looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);

/// Prefixes: of what is written, of what is read, and whether tensors, datasets, lists and models have them.
type KeyParts = (Option<String>, Option<String>, bool, bool, bool, bool);

fn keys(parts: KeyParts) -> Keys {
    let (writes, reads, tensors, datasets, lists, models) = parts;
    Keys { writes, reads, sources: Vec::new(), tensors, datasets, lists, models }
}

/// A client of a store.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct StoreClient {
    store: RwLock<Option<Store>>,
    pid: u32,
}

impl StoreClient {
    fn store(&self) -> Result<Store, Failure> {
        if self.pid != std::process::id() {
            return Err(Failure::forked().hint("connect to the store in this process"));
        }
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        store.clone().ok_or_else(|| Failure::input("the store is closed"))
    }

    /// Asks the store without the interpreter's lock.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Store) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        let store = self.store()?;
        Ok(py.detach(|| act(&store)).map_err(|error| Failure::store(&error))?)
    }

    /// Waits in slices, so that Ctrl-C is noticed; false when the time is up.
    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        slice: impl Fn(&Store, Duration) -> Result<(), StoreError> + Send + Sync,
    ) -> PyResult<bool> {
        let until = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        let store = self.store()?;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let within = left.map_or(TICK, |left| left.min(TICK));
            match py.detach(|| slice(&store, within)) {
                Ok(()) => return Ok(true),
                Err(StoreError::TimedOut { .. }) if left.is_some_and(|left| left <= within) => {
                    return Ok(false);
                }
                Err(StoreError::TimedOut { .. }) => py.check_signals()?,
                Err(error) => return Err(Failure::store(&error).into()),
            }
        }
    }
}

#[pymethods]
impl StoreClient {
    /// Connects to the store at an address.
    #[new]
    fn new(
        py: Python<'_>,
        address: String,
        password: Option<String>,
        key_parts: KeyParts,
        shares_memory: bool,
        patience: f64,
    ) -> PyResult<Self> {
        let options = StoreOptions {
            password,
            keys: keys(key_parts),
            no_shared_memory: !shares_memory,
            patience: seconds(patience)?,
            interrupt: Some(Interrupt::new(look_for_signals)),
            ..StoreOptions::default()
        };
        let store = on_thread(py, move || Store::connect(&address, options))?;
        Ok(Self { store: RwLock::new(Some(store)), pid: std::process::id() })
    }

    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.store()?.address())
    }

    /// The same connection with other prefixes.
    fn with_keys(&self, key_parts: KeyParts) -> PyResult<Self> {
        let other = self.store()?.with_keys(keys(key_parts));
        Ok(Self { store: RwLock::new(Some(other)), pid: self.pid })
    }

    fn close(&self) {
        // A connection of the parent process is left alone.
        if self.pid == std::process::id() {
            drop(self.store.write().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    fn put(&self, py: Python<'_>, name: &str, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let tensor = arrays::borrow(array)?;
        self.ask(py, |store| store.put(name, &tensor))
    }

    fn put_all(&self, py: Python<'_>, named: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        let tensors = borrowed(named)?;
        self.ask(py, |store| store.put_all(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))))
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<Memory> {
        self.ask(py, |store| store.get(name)).map(Memory::new)
    }

    /// Several tensors; nothing in the place of those that are not there.
    fn get_all(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<Option<Memory>>> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = self.ask(py, |store| store.get_all(&names))?;
        Ok(found.into_iter().map(|tensor| tensor.map(Memory::new)).collect())
    }

    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.ask(py, |store| store.delete(name))
    }

    fn copy(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.copy(source, target))
    }

    fn rename(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.rename(source, target))
    }

    fn exists(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.ask(py, |store| store.exists(name))
    }

    fn key_exists(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        self.ask(py, |store| store.key_exists(key))
    }

    /// Waits for a tensor; false when the time is up.
    fn wait_for(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, timeout, |store, within| store.wait(name, within))
    }

    fn wait_for_key(&self, py: Python<'_>, key: &str, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, timeout, |store, within| store.wait_for_key(key, within))
    }

    fn wait_for_dataset(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, timeout, |store, within| store.wait_for_dataset(name, within))
    }

    fn wait_for_length(
        &self,
        py: Python<'_>,
        list: &str,
        least: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.wait(py, timeout, |store, within| store.wait_for_length(list, least, within))
    }

    fn put_dataset(
        &self,
        py: Python<'_>,
        name: String,
        named: Vec<(String, Bound<'_, PyAny>)>,
        fields: Vec<MetaParts<'_>>,
    ) -> PyResult<()> {
        let mut dataset = phalanx_store_client::Dataset::new(name);
        for (name, tensor) in borrowed(named)? {
            dataset.add_tensor(name, tensor);
        }
        for (field, kind, list) in fields {
            let values = metadata(&field, &kind, &list)?;
            dataset.add_metadata(field, values).map_err(|error| Failure::input(error.to_string()))?;
        }
        self.ask(py, |store| store.put_dataset(&dataset))
    }

    fn get_dataset<'py>(&self, py: Python<'py>, name: &str) -> PyResult<DatasetParts<'py>> {
        dataset_parts(py, &self.ask(py, |store| store.get_dataset(name))?)
    }

    fn dataset_exists(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.ask(py, |store| store.dataset_exists(name))
    }

    fn delete_dataset(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.ask(py, |store| store.delete_dataset(name))
    }

    fn copy_dataset(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.copy_dataset(source, target))
    }

    fn rename_dataset(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.rename_dataset(source, target))
    }

    fn append(&self, py: Python<'_>, list: &str, dataset: &str) -> PyResult<u64> {
        self.ask(py, |store| store.append(list, dataset))
    }

    fn list_length(&self, py: Python<'_>, list: &str) -> PyResult<u64> {
        self.ask(py, |store| store.list_length(list))
    }

    /// The datasets of a list from `first` to `last`, both included.
    fn list_datasets<'py>(
        &self,
        py: Python<'py>,
        list: &str,
        first: i64,
        last: i64,
    ) -> PyResult<Vec<DatasetParts<'py>>> {
        let datasets = self.ask(py, |store| store.list_datasets(list, first, last))?;
        datasets.iter().map(|dataset| dataset_parts(py, dataset)).collect()
    }

    /// The keys of the datasets of a list, without their endings.
    fn list_elements(&self, py: Python<'_>, list: &str, first: i64, last: i64) -> PyResult<Vec<String>> {
        self.ask(py, |store| store.list_elements(list, first, last))
    }

    fn delete_list(&self, py: Python<'_>, list: &str) -> PyResult<bool> {
        self.ask(py, |store| store.delete_list(list))
    }

    fn copy_list(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.copy_list(source, target))
    }

    fn rename_list(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.ask(py, |store| store.rename_list(source, target))
    }

    /// Begins to append to a stream; settings are JSON.
    fn producer(
        &self,
        py: Python<'_>,
        stream: &str,
        name: &str,
        incarnation: Option<u64>,
        settings: Option<&str>,
    ) -> PyResult<StreamProducer> {
        let options = streams::producer_options(name, incarnation, settings)?;
        StreamProducer::open(py, &self.store()?, stream, options)
    }

    /// Begins to read a stream; settings of the reader, of the stream if it is new, and the place to resume from are JSON.
    fn reader(
        &self,
        py: Python<'_>,
        stream: &str,
        name: &str,
        incarnation: Option<u64>,
        settings: &str,
        places: (Option<String>, Option<String>),
    ) -> PyResult<StreamRun> {
        let options = streams::read_options(name, incarnation, settings, &places)?;
        StreamRun::open(py, &self.store()?, stream, options)
    }

    /// Joins the reader of another process.
    fn attach(&self, py: Python<'_>, stream: &str, name: &str, timeout: Option<f64>) -> PyResult<StreamRun> {
        StreamRun::attach(py, &self.store()?, stream, name, timeout)
    }

    /// Everything that there is to show of a stream, as JSON.
    fn stream_info(&self, py: Python<'_>, stream: &str) -> PyResult<String> {
        let info = streams::ask(py, || self.store(), |store| store.stream_info(stream))?;
        streams::json(&info)
    }

    fn streams(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        streams::ask(py, || self.store(), |store| store.streams())
    }

    fn seal_stream(&self, py: Python<'_>, stream: &str) -> PyResult<()> {
        streams::ask(py, || self.store(), |store| store.seal_stream(stream))
    }

    fn delete_stream(&self, py: Python<'_>, stream: &str) -> PyResult<bool> {
        streams::ask(py, || self.store(), |store| store.delete_stream(stream))
    }

    /// Sends one command as it is.
    fn command<'py>(&self, py: Python<'py>, words: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyAny>> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        python_reply(py, self.ask(py, |store| store.command(&words))?)
    }
}

fn borrowed(named: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Vec<(String, Tensor)>> {
    named.into_iter().map(|(name, array)| Ok((name, arrays::borrow(&array)?))).collect()
}

/// Ends a wait for room when a handler of a signal raised something, such as Ctrl-C.
fn look_for_signals() -> Result<(), Interruption> {
    Ok(Python::attach(|py| py.check_signals())?)
}

/// Does work that cannot be broken off, and looks for Ctrl-C meanwhile; then the work goes on by itself.
fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let receiver = std::sync::Mutex::new(receiver);
    let body = move || {
        // The caller does not listen after Ctrl-C.
        let _unheard = sender.send(work());
    };
    let thread = std::thread::Builder::new().name("phalanx-store".to_owned()).spawn(body);
    thread.map_err(|error| Failure::machine(&error))?;
    loop {
        let done = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(TICK)
        });
        match done {
            Ok(done) => return Ok(done.map_err(|error| Failure::store(&error))?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::bug("connecting to a store panicked".to_owned()).into());
            }
        }
    }
}
