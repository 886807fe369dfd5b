//! Collectives over point-to-point connections.
//!
//! ```text
//!   Links::run(call)
//!        |  core::schedule::Progress: what may be sent, what may be written
//!        +--> run        sends and receives, waits in one poll for all links
//!        +--> frame      first the call, then data; an abort ends everything
//!        +--> farewell   tells the others why
//! ```
//! Every wait ends by data, by an abort (from outside or from a peer) or by a closed connection. After a failure the
//! links are closed: a group that failed is over.

mod aborter;
mod farewell;
mod frame;
mod join;
mod link;
mod run;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use aborter::Aborter;
pub(crate) use join::Joining;
pub use socket::Socket;

use crate::core::numbers;
use crate::core::schedule::{Area, Arithmetic, Memory, Program, Step};
use crate::core::words::{Reduction, Signature};
use crate::error::CollectiveError;
use farewell::farewell;
use link::Link;
use run::CallRun;
use std::fmt;
use std::io;
use std::time::Duration;

/// The least bytes of a frame that is not the last, and the most bytes received before they are combined, so that they
/// are still in the L2 cache.
const BLOCK: usize = 256 << 10;

/// Called with the rank waited for and the time so far.
pub(crate) type OnWait = Box<dyn FnMut(usize, Duration) + Send>;

/// One rank's connections to the others.
pub(crate) struct Links {
    rank: usize,
    epoch: u64,
    links: Vec<Option<Link>>,
    aborter: Aborter,
    /// Received elements that are not combined yet.
    block: Vec<u64>,
    scratch: Vec<u64>,
    /// The last call in which joined ranks could not take part.
    without_zeros: Option<Signature>,
    /// Why the group is over.
    over: Option<String>,
    on_wait: Option<(Duration, OnWait)>,
}

/// One collective, as one rank calls it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) program: &'a Program,
    pub(crate) arithmetic: Arithmetic,
    /// Empty when computing in place.
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, epoch, links, over, .. } = self;
        let ranks = links.len();
        f.debug_struct("Links")
            .field("rank", rank)
            .field("ranks", &ranks)
            .field("epoch", epoch)
            .field("over", over)
            .finish_non_exhaustive()
    }
}

impl Links {
    /// Takes connected streams, one for each other rank.
    ///
    /// # Errors
    /// A stream cannot be set up.
    pub(crate) fn new(rank: usize, epoch: u64, streams: Vec<Option<impl Into<Socket>>>) -> io::Result<Self> {
        let streams = streams.into_iter().map(|stream| stream.map(Into::into));
        let links = streams.map(|stream| stream.map(Link::new).transpose()).collect::<Result<_, _>>()?;
        let (block, scratch) = (vec![0; BLOCK / 8], Vec::new());
        Ok(Self {
            rank,
            epoch,
            links,
            aborter: Aborter::new()?,
            block,
            scratch,
            without_zeros: None,
            over: None,
            on_wait: None,
        })
    }

    pub(crate) fn aborter(&self) -> Aborter {
        self.aborter.clone()
    }

    /// Calls back whenever one wait has lasted another `after`.
    pub(crate) fn on_wait(&mut self, after: Duration, call: OnWait) {
        self.on_wait = Some((after, call));
    }

    /// The reason in the abort of a rank that sends nothing more, if there is one.
    pub(crate) fn last_word(&self, rank: usize) -> Option<String> {
        self.links.get(rank)?.as_ref()?.peek_last_word()
    }

    /// Carries out one collective.
    ///
    /// # Errors
    /// The ranks do not agree, a rank is lost, the group is aborted, or the call does not fit its program. The other
    /// ranks are told, and every later call fails for the same reason.
    pub(crate) fn run(&mut self, call: Call<'_>) -> Result<(), CollectiveError> {
        if let Some(reason) = &self.over {
            return Err(CollectiveError::Aborted { epoch: self.epoch, reason: reason.clone() });
        }
        let result = self.check(&call).and_then(|()| self.carry_out(call));
        if let Err(error) = &result {
            let reason = match error {
                CollectiveError::Aborted { reason, .. } => reason.clone(),
                other => other.to_string(),
            };
            self.close(reason);
        }
        result
    }

    fn carry_out(&mut self, call: Call<'_>) -> Result<(), CollectiveError> {
        let Call { signature, program, arithmetic, input, output } = call;
        let words = (program.scratch * arithmetic.dtype.size()).div_ceil(8);
        if self.scratch.len() < words {
            self.scratch.resize(words, 0);
        }
        let call = frame::CallFrame {
            epoch: self.epoch,
            algorithm: program.algorithm,
            signature: signature.clone(),
        };
        let scratch = bytemuck::cast_slice_mut(&mut self.scratch);
        let memory = Memory { input, output, scratch, arithmetic };
        let mut run = CallRun {
            rank: self.rank,
            signature,
            call: call.encode(),
            epoch: self.epoch,
            links: &mut self.links,
            aborter: &self.aborter,
            on_wait: &mut self.on_wait,
            progress: crate::core::schedule::Progress::new(program, arithmetic.dtype.size()),
            memory,
            block: bytemuck::cast_slice_mut(&mut self.block),
            held: 0,
        };
        let result = run.run();
        if result.is_err() {
            run.leave();
        }
        if !signature.takes_zeros() {
            self.without_zeros = Some(call.signature);
        }
        result
    }

    /// Checks that the call provides what its program needs.
    fn check(&self, call: &Call<'_>) -> Result<(), CollectiveError> {
        let Call { signature, program, arithmetic, input, output } = call;
        let what = signature.kind.word();
        let size = arithmetic.dtype.size();
        for (area, bytes) in [(Area::Input, *input), (Area::Output, &**output)] {
            let (wanted, got) = (program.extent(area), bytes.len() / size);
            if wanted > got {
                return Err(CollectiveError::Length { what, wanted, got });
            }
            if wanted > 0 && program.combines() && bytes.as_ptr().addr() % size != 0 {
                let problem = format!("its elements are not aligned to {size} bytes");
                return Err(CollectiveError::System { what: "combine a tensor", problem });
            }
        }
        let by_elements = arithmetic.reduction != Reduction::Adasum
            && numbers::supports(arithmetic.dtype, arithmetic.reduction);
        if program.combines() && !by_elements {
            return Err(CollectiveError::DType { what, dtype: arithmetic.dtype });
        }
        for step in &program.steps {
            if let Step::Send { to: rank, .. } | Step::Receive { from: rank, .. } = step
                && !matches!(self.links.get(*rank), Some(Some(_)))
            {
                return Err(CollectiveError::NoRank { rank: *rank, ranks: self.links.len() });
            }
        }
        Ok(())
    }

    fn close(&mut self, reason: String) {
        farewell(self.links.drain(..).flatten().collect(), &reason);
        self.over = Some(reason);
    }
}

impl Drop for Links {
    /// An abort that arrived between two collectives is passed on too.
    fn drop(&mut self) {
        if self.over.is_none()
            && let Some(reason) = self.aborter.reason()
        {
            self.close(reason.to_owned());
        }
    }
}
