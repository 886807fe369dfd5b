//! `phalanx domain`: keys.

use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::paths;
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use phalanx_fabric::{DomainKey, KeyError};
use phalanx_own_files::make_dir;
use phalanx_types::DomainName;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DomainCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make the key of a new domain.
    ///
    /// Whoever has the file is a member: copy it to each machine over a safe way.
    ///
    /// Example: phalanx domain new lab
    #[command(verbatim_doc_comment)]
    New(DomainFile),
    /// Show a domain's key without its secret.
    ///
    /// Example: phalanx domain show lab
    #[command(verbatim_doc_comment)]
    Show {
        #[command(flatten)]
        file: DomainFile,
        /// Print the token a relay needs to serve this domain.
        #[arg(long)]
        relay_token: bool,
        /// Print the certificate that clients without the key check the domain's stores against.
        #[arg(long, conflicts_with = "relay_token")]
        ca: bool,
    },
}

#[derive(Debug, Args)]
struct DomainFile {
    /// The name of the domain.
    name: DomainName,
    /// Where the key is kept, if not in the usual place.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl DomainFile {
    fn path(&self) -> Result<PathBuf, Failure> {
        self.file.clone().map_or_else(|| paths::domain_key(&self.name), Ok)
    }
}

#[derive(Debug, Serialize)]
struct KeyInfo {
    domain: String,
    file: String,
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay_token: Option<String>,
    /// PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
}

impl Render for KeyInfo {
    fn table(&self) -> String {
        if let Some(certificate) = &self.certificate {
            return certificate.trim_end().to_owned();
        }
        let token = self.relay_token.iter().map(|t| ("relay token", t.clone()));
        summary(
            [
                ("domain", self.domain.clone()),
                ("key file", self.file.clone()),
                ("fingerprint", self.fingerprint.clone()),
            ]
            .into_iter()
            .chain(token),
        )
    }

    fn quiet(&self) -> String {
        let asked = self.relay_token.as_ref().or(self.certificate.as_ref());
        asked.unwrap_or(&self.file).trim_end().to_owned()
    }
}

pub(crate) fn run(command: DomainCommand, output: Output) -> Result<(), Failure> {
    let (file, key, token, certificate) = match command.verb {
        Verb::New(file) => {
            let key = DomainKey::generate(&file.name).map_err(Failure::infrastructure)?;
            let path = file.path()?;
            if let Some(dir) = path.parent() {
                make_dir(dir)
                    .with_context(|| format!("could not make {}", dir.display()))
                    .map_err(Failure::infrastructure)?;
            }
            key.save(&path).map_err(|error| match error {
                KeyError::Exists { .. } => {
                    Failure::usage(error).hint("a key is never overwritten: every member would be locked out")
                }
                _ => Failure::infrastructure(error).hint("--file puts the key elsewhere"),
            })?;
            (file, key, None, None)
        }
        Verb::Show { file, relay_token, ca } => {
            let key = DomainKey::load(&file.path()?).map_err(|error| {
                Failure::usage(error).hint(format!("`phalanx domain new {}` makes it", file.name))
            })?;
            if *key.domain() != file.name {
                let error = anyhow!("this is the key of domain {}, not of {}", key.domain(), file.name);
                return Err(Failure::usage(error).hint("--file names the file of another key"));
            }
            let token = relay_token.then(|| key.relay_token().to_string());
            let certificate = ca.then(|| key.authority_pem());
            (file, key, token, certificate)
        }
    };
    output.print(&KeyInfo {
        domain: key.domain().to_string(),
        file: file.path()?.display().to_string(),
        fingerprint: key.fingerprint(),
        relay_token: token,
        certificate,
    })
}
