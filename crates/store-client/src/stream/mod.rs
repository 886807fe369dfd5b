//! Streams: producers append samples, training runs read them.
//!
//! Every producer and reader has a connection of its own: the store notices by it that a process has died. Waits are
//! the server's, which answers when something changes; a lost connection is opened again and the request repeated.

mod error;
mod heartbeat;
mod link;
mod produce;
mod reader;
mod samples;
mod trainer;
mod watch;

pub use error::StreamError;
pub use phalanx_streams::{PassAnswer, StreamField, StreamInfo};
pub use produce::{Producer, ProducerOptions, WaitObserver};
pub use reader::{ReadOptions, StreamReader};
pub use samples::StreamSamples;
pub use trainer::{StreamTrainer, TrainerAnswer};
pub use watch::StreamWatch;

use crate::keys::Access;
use crate::store::Store;
use link::StreamLink;
use phalanx_streams::StreamSettings;
use phalanx_types::ReaderId;
use std::time::Duration;

impl Store {
    /// Makes a stream, or does nothing if there is one with these settings.
    ///
    /// # Errors
    /// There is one with other settings, or the store cannot be reached.
    pub fn create_stream(&self, stream: &str, settings: &StreamSettings) -> Result<(), StreamError> {
        let link = StreamLink::of(self, stream, Access::Write)?;
        link.ask("CREATE", &[&link::json(settings)?], None).map(|_made| ())
    }

    /// Begins to append uploads to a stream, which is made if it is not there.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses this producer.
    pub fn produce(&self, stream: &str, options: ProducerOptions) -> Result<Producer, StreamError> {
        Producer::open(self, stream, options)
    }

    /// Begins to read a stream for a training run, or goes on after a restart. The stream is made if it is not there:
    /// datasets that programs append to a list of this name are its uploads.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses the settings or the place to resume from.
    pub fn read_stream(&self, stream: &str, options: ReadOptions) -> Result<StreamReader, StreamError> {
        StreamReader::open(self, stream, options)
    }

    /// Joins the reader of a run from another process of the same run: it may ask for passes and read samples, not
    /// commit. Waits until the reader is there.
    ///
    /// # Errors
    /// It is not there in time, or the store cannot be reached.
    pub fn attach_stream(
        &self,
        stream: &str,
        reader: &ReaderId,
        within: Duration,
    ) -> Result<StreamReader, StreamError> {
        StreamReader::attach(self, stream, reader, within)
    }

    /// Everything that there is to show of a stream.
    ///
    /// # Errors
    /// There is no such stream, or the store cannot be reached.
    pub fn stream_info(&self, stream: &str) -> Result<StreamInfo, StreamError> {
        StreamLink::of(self, stream, Access::Read)?.ask("INFO", &[], None)?.json()
    }

    /// The names of all streams.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn streams(&self) -> Result<Vec<String>, StreamError> {
        let link = StreamLink::whole(self)?;
        let mut names = Vec::new();
        for node in self.nodes() {
            names.extend(link.ask_node(&node, "LIST", &[], Duration::ZERO)?.texts()?);
        }
        names.sort();
        Ok(names)
    }

    /// Ends a stream: no more samples will arrive, whatever its producers do.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn seal_stream(&self, stream: &str) -> Result<(), StreamError> {
        StreamLink::of(self, stream, Access::Read)?.ask("SEAL", &[], None).map(|_sealed| ())
    }

    /// Deletes a stream with its samples; whether it was there.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn delete_stream(&self, stream: &str) -> Result<bool, StreamError> {
        StreamLink::of(self, stream, Access::Write)?
            .ask("DELETE", &[], None)
            .map(|answer| answer.is("DELETED"))
    }

    /// Follows a stream, or all of them: what there is to show, whenever it changes.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn watch_streams(&self, stream: Option<&str>) -> Result<StreamWatch, StreamError> {
        StreamWatch::open(self, stream)
    }
}
