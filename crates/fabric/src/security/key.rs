use super::private::{PrivateFileError, read_private};
use super::{RelayToken, Secret, hex};
use phalanx_types::{Class, DomainName, NodeId};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// Why a domain key could not be made, read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    #[error("could not make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("could not set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("could not set up certificate checks")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("there is a key already at {path}")]
    Exists { path: PathBuf },
    #[error("could not write the domain key to {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not read the domain key")]
    Private(#[from] PrivateFileError),
    #[error("not a domain key: {path}")]
    Form {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the certificate in the domain key is damaged")]
    Damaged(#[source] rustls::pki_types::pem::Error),
}

impl KeyError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            KeyError::Private(error) => error.hint(),
            _ => None,
        }
    }
}

/// The certificate authority of one domain: a node that has it can join, and can let others join.
#[derive(Clone)]
pub struct DomainKey(Arc<KeyMaterial>);

struct KeyMaterial {
    domain: DomainName,
    authority: CertificateDer<'static>,
    key: KeyPair,
}

impl fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainKey({}, {})", self.domain(), self.fingerprint())
    }
}

/// A certificate of one node with its private key.
#[derive(Debug)]
pub struct NodeCertificate {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    domain: DomainName,
    certificate: String,
    private_key: String,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn authority_params(domain: &DomainName) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "phalanx");
    params.distinguished_name.push(DnType::CommonName, domain.as_str());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

impl DomainKey {
    /// Makes the key of a new domain.
    ///
    /// # Errors
    /// The system gave no random numbers.
    pub fn generate(domain: &DomainName) -> Result<Self, KeyError> {
        let key = KeyPair::generate()?;
        let mut params = authority_params(domain);
        params.not_before = OffsetDateTime::from(SystemTime::now() - DAY);
        params.not_after = OffsetDateTime::from(SystemTime::now() + DAY * 365 * 20);
        let authority = params.self_signed(&key)?.der().clone();
        Ok(Self(Arc::new(KeyMaterial { domain: domain.clone(), authority, key })))
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// The file cannot be read, other users may read it, or it is not a domain key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        let file: KeyFile = serde_json::from_slice(&text)
            .map_err(|source| KeyError::Form { path: path.to_owned(), source })?;
        let authority =
            CertificateDer::from_pem_slice(file.certificate.as_bytes()).map_err(KeyError::Damaged)?;
        let key = KeyPair::from_pem(&file.private_key)?;
        Ok(Self(Arc::new(KeyMaterial { domain: file.domain, authority: authority.into_owned(), key })))
    }

    /// Writes the key so that only its owner can read it; an existing file stays as it is.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let write = |source| KeyError::Write { path: path.to_owned(), source };
        let file = KeyFile {
            domain: self.domain().clone(),
            certificate: pem("CERTIFICATE", &self.0.authority),
            private_key: self.0.key.serialize_pem(),
        };
        let text = serde_json::to_vec_pretty(&file)
            .map_err(|source| KeyError::Form { path: path.to_owned(), source })?;
        let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut target = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(KeyError::Exists { path: path.to_owned() });
            }
            other => other.map_err(write)?,
        };
        target.write_all(&text).and_then(|()| target.sync_all()).map_err(write)
    }

    pub fn domain(&self) -> &DomainName {
        &self.0.domain
    }

    /// A short identifier of the key that people can compare: sixteen hex digits.
    pub fn fingerprint(&self) -> String {
        hex(&self.digest().as_ref()[..8])
    }

    /// The certificate that every member's certificate is checked against.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.0.authority
    }

    fn digest(&self) -> ring::digest::Digest {
        ring::digest::digest(&ring::digest::SHA256, &self.0.authority)
    }

    /// The token that a relay needs to serve this domain.
    pub fn relay_token(&self) -> RelayToken {
        // Derived from the private key, so that only members know it.
        let root = Secret::new(self.0.key.serialized_der());
        let tag = root.prove("phalanx relay tag", &[]);
        RelayToken::new(tag, root.prove("phalanx relay secret", &[]))
    }

    /// Issues a certificate to a node.
    ///
    /// # Errors
    /// The system gave no random numbers.
    pub fn issue(
        &self,
        node: &NodeId,
        not_before: SystemTime,
        not_after: SystemTime,
    ) -> Result<NodeCertificate, KeyError> {
        self.issue_as(node, vec![super::subject_name(node)], (not_before, not_after))
    }

    fn issue_as(
        &self,
        node: &NodeId,
        names: Vec<String>,
        (not_before, not_after): (SystemTime, SystemTime),
    ) -> Result<NodeCertificate, KeyError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node.as_str());
        params.not_before = OffsetDateTime::from(not_before);
        params.not_after = OffsetDateTime::from(not_after);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = Issuer::new(authority_params(self.domain()), &self.0.key);
        let certificate = params.signed_by(&key, &issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(NodeCertificate { certificate, key })
    }

    /// Issues the certificate a node uses while it runs.
    pub(crate) fn issue_now(&self, node: &NodeId) -> Result<NodeCertificate, KeyError> {
        self.issue_named(node, &[])
    }

    /// The same for a node that clients without the key reach by these host names and addresses.
    pub(crate) fn issue_named(&self, node: &NodeId, names: &[String]) -> Result<NodeCertificate, KeyError> {
        let names = std::iter::once(super::subject_name(node)).chain(names.iter().cloned()).collect();
        // Backdated by a day, because clocks of other members may be behind.
        let times = (SystemTime::now() - DAY, SystemTime::now() + DAY * 365 * 10);
        self.issue_as(node, names, times)
    }
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for triple in der.chunks(3) {
        let word = triple.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - triple.len()));
        for i in 0..4 {
            let digit = DIGITS.get((word >> (18 - 6 * i)) as usize & 63).copied().unwrap_or(b'A');
            text.push(if i <= triple.len() { char::from(digit) } else { '=' });
        }
    }
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).filter_map(|start| text.get(start..text.len().min(start + 64))).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_key_is_the_same_key_private_and_never_overwritten() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lab.key");
        let key = DomainKey::generate(&DomainName::new("lab").unwrap()).unwrap();
        key.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = DomainKey::load(&path).unwrap();
        assert_eq!(loaded.fingerprint(), key.fingerprint());
        assert_eq!(loaded.relay_token(), key.relay_token());
        assert_eq!(loaded.authority(), key.authority());
        assert!(matches!(key.save(&path), Err(KeyError::Exists { .. })));
        std::fs::write(&path, "nonsense").unwrap();
        assert!(matches!(DomainKey::load(&path), Err(KeyError::Form { .. })));
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_command_that_mends_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lab.key");
        DomainKey::generate(&DomainName::new("lab").unwrap()).unwrap().save(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = DomainKey::load(&path).unwrap_err();
            assert_eq!(error.hint(), Some(format!("chmod 600 {}", path.display())), "{error:?}");
        }
        for mode in [0o600, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            DomainKey::load(&path).unwrap();
        }
    }
}
