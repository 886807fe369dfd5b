//! What a candidate comes to: an ordinary run, or a program of the user's.

use phalanx_graph::{Graph, layers};
use phalanx_search::core::template::Expanded;
use phalanx_train::config::{ConfigError, RunConfig, RunFile};
use std::path::Path;

/// The run file that an expanded candidate stands for; its paths begin where the search file is.
const RUN: &str = "run.toml";

/// A candidate that can be tried.
#[derive(Debug, Clone)]
pub(crate) enum Candidate {
    Train {
        config: Box<RunConfig>,
        /// The network, if the search file has its layers.
        graph: Option<Box<Graph>>,
    },
    Program,
}

/// Why a candidate cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CandidateError {
    #[error("its layers do not make a model")]
    Layers(#[from] layers::LayersError),
    #[error("it does not make a run")]
    Run(#[from] ConfigError),
}

impl Candidate {
    /// Builds the network, and checks the run file.
    pub(crate) fn of(expanded: &Expanded, base: &Path) -> Result<Self, CandidateError> {
        if expanded.argv.is_some() {
            return Ok(Self::Program);
        }
        let graph = expanded.model.as_deref().map(layers::parse).transpose()?.map(Box::new);
        let file = RunFile::parse(&base.join(RUN), &expanded.run, &[])?;
        Ok(Self::Train { config: Box::new(file.config), graph })
    }
}
