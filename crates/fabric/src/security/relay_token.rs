use super::{Secret, hex};
use phalanx_types::NodeId;
use phalanx_wire::handshake::{Nonce, Proof};
use phalanx_wire::relay::DomainTag;
use std::fmt;
use std::str::FromStr;

/// The credentials of a relay for a domain: its tag and a secret that only members can derive.
///
/// A member proves its membership to the relay with it; it does not let the relay speak as a member. The text form is
/// secret: anyone who has it may use the relay.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayToken {
    tag: DomainTag,
    secret: [u8; 32],
}

/// Why a piece of text is not a relay token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTokenError {
    #[error("a relay token looks like phalanx-relay:<64 hex digits>:<64 hex digits>")]
    Form,
}

/// The request to a relay that a proof covers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask<'a> {
    Register,
    Dial(&'a NodeId),
    Accept(u64),
}

impl RelayToken {
    pub(crate) fn new(tag: DomainTag, secret: [u8; 32]) -> Self {
        Self { tag, secret }
    }

    pub fn tag(&self) -> &DomainTag {
        &self.tag
    }

    pub(crate) fn prove(&self, ask: Ask<'_>, nonce: &Nonce, node: &NodeId) -> Proof {
        let secret = Secret::new(&self.secret);
        with_parts(ask, nonce, node, |label, parts| secret.prove(label, parts))
    }

    pub(crate) fn check(&self, ask: Ask<'_>, nonce: &Nonce, node: &NodeId, proof: &Proof) -> bool {
        let secret = Secret::new(&self.secret);
        with_parts(ask, nonce, node, |label, parts| secret.check(label, parts, proof))
    }
}

fn with_parts<T>(ask: Ask<'_>, nonce: &Nonce, node: &NodeId, f: impl FnOnce(&str, &[&[u8]]) -> T) -> T {
    let node = node.as_str().as_bytes();
    match ask {
        Ask::Register => f("phalanx relay register", &[nonce, node]),
        Ask::Dial(to) => f("phalanx relay dial", &[nonce, node, to.as_str().as_bytes()]),
        Ask::Accept(ticket) => f("phalanx relay accept", &[nonce, node, &ticket.to_le_bytes()]),
    }
}

const PREFIX: &str = "phalanx-relay";

impl fmt::Display for RelayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}:{}:{}", hex(&self.tag), hex(&self.secret))
    }
}

impl fmt::Debug for RelayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayToken({}, ..)", hex(&self.tag[..4]))
    }
}

impl FromStr for RelayToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let mut parts = text.trim().split(':');
        let form = ParseTokenError::Form;
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(PREFIX), Some(tag), Some(secret), None) => {
                Ok(Self { tag: unhex(tag).ok_or(form.clone())?, secret: unhex(secret).ok_or(form)? })
            }
            _ => Err(form),
        }
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    let (pairs, _) = digits.as_chunks::<2>();
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_prints_and_hides_its_secret_in_logs() {
        let token = RelayToken::new([0xab; 32], [0x0c; 32]);
        assert_eq!(token.to_string().parse::<RelayToken>().unwrap(), token);
        assert!(!format!("{token:?}").contains("0c0c"));
        for bad in ["", "phalanx-relay:ab:cd", "x:y:z", "phalanx-relay:ä"] {
            assert_eq!(bad.parse::<RelayToken>(), Err(ParseTokenError::Form));
        }
    }
}
