//! Authentication: the domain key and what is derived from it.
//!
//! No code here opens a socket. [`DomainKey`] is the certificate authority of one domain; every node that has it issues
//! itself a certificate. [`RelayToken`] lets a relay check membership without being able to impersonate a member.

mod key;
mod proof;
mod relay_token;
mod service_tls;
mod tls;

pub use key::{DomainKey, KeyError, NodeCertificate};
pub(crate) use proof::{Claim, DomainToken, End, Secret, random};
pub(crate) use relay_token::Ask;
pub use relay_token::{ParseTokenError, RelayToken};
pub use service_tls::service_names;
pub use tls::subject_name;
pub(crate) use tls::{TlsContext, is_issued_to};

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
