//! Authentication: the domain key and what is derived from it.
//!
//! No code here opens a socket. [`DomainKey`] is the certificate authority of one domain; every node that has it issues
//! itself a certificate. [`RelayToken`] lets a relay check membership without being able to impersonate a member.

mod key;
mod private;
mod proof;
mod relay_token;
mod service_tls;
mod tls;

pub use key::{DomainKey, KeyError, NodeCertificate};
pub use private::{PrivateFileError, read_private};
pub(crate) use proof::{Claim, DomainToken, End, Secret, random};
pub(crate) use relay_token::Ask;
pub use relay_token::{ParseTokenError, RelayToken};
pub use service_tls::service_names;
pub use tls::subject_name;
pub(crate) use tls::{TlsContext, is_issued_to};

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A number that follows from a secret and a name, and gives neither away: HMAC-SHA-256, cut short.
pub fn keyed_number(secret: u64, name: &str) -> u64 {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret.to_le_bytes());
    let tag = ring::hmac::sign(&key, name.as_bytes());
    tag.as_ref().first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyed_number_is_another_one_for_every_name_and_secret() {
        let number = keyed_number(7, "n-0001");
        assert_eq!(keyed_number(7, "n-0001"), number);
        assert_eq!(
            [keyed_number(7, "n-0002"), keyed_number(8, "n-0001")].map(|other| other == number),
            [false; 2]
        );
    }
}
