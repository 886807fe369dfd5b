//! Which store a command means.

use super::password;
use crate::failure::Failure;
use clap::Args;
use phalanx_store_client::{Store, StoreError, StoreOptions};
use phalanx_types::DomainName;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct At {
    /// The store: HOST:PORT, unix:///PATH, rediss://HOST:PORT?ca=FILE, phalanx://DOMAIN, or a Redis server or cluster.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6780", env = "PHALANX_STORE")]
    at: String,
    /// The domain whose nodes serve the store; the same as --at phalanx://DOMAIN.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<DomainName>,
    /// A file whose first line is the store's password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl At {
    pub(crate) fn connect(&self) -> Result<Store, Failure> {
        let password = password(self.password_file.as_deref())?;
        let options = StoreOptions { password, ..StoreOptions::default() };
        let of_domain = self.domain.as_ref().map(|domain| format!("phalanx://{domain}"));
        Store::connect(of_domain.as_ref().unwrap_or(&self.at), options).map_err(failure)
    }
}

/// How a command ends when the store did not do what was asked.
pub(crate) fn failure(error: StoreError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        StoreError::Address(_)
        | StoreError::Missing { .. }
        | StoreError::Refused { .. }
        | StoreError::Tls { .. }
        | StoreError::TlsFile { .. }
        | StoreError::DomainKey(_)
        | StoreError::OtherDomain { .. }
        | StoreError::NoKey { .. }
        | StoreError::TooLarge { .. } => Failure::usage(error),
        StoreError::TimedOut { .. } | StoreError::Full { .. } => Failure::work(error),
        error => Failure::infrastructure(error),
    };
    failure.hint_if(hint)
}
