//! Keyed hashes that prove knowledge of a secret without revealing it.

use phalanx_types::NodeId;
use phalanx_wire::handshake::{Nonce, Proof};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::net::SocketAddr;

/// Fills an array with random bytes; `None` if the system has none.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

/// A shared secret that never leaves the process.
#[derive(Clone)]
pub(crate) struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Hashes the parts, each preceded by its length, so that no two lists have the same encoding.
    pub(crate) fn prove(&self, label: &str, parts: &[&[u8]]) -> Proof {
        let context = self.context(label, parts);
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// Compares in constant time.
    pub(crate) fn check(&self, label: &str, parts: &[&[u8]], proof: &Proof) -> bool {
        let expected = self.prove(label, parts);
        let difference = expected.iter().zip(proof).fold(0u8, |d, (a, b)| d | (a ^ b));
        std::hint::black_box(difference) == 0
    }

    fn context(&self, label: &str, parts: &[&[u8]]) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(label.as_bytes());
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context
    }
}

/// The secret in the token file of a domain without a key: only processes of the same user can read it.
#[derive(Debug, Clone)]
pub(crate) struct DomainToken(Secret);

/// Which end of a connection a proof speaks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Dialer,
    Acceptor,
}

/// The content of a proof of membership.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) challenge: &'a Nonce,
    pub(crate) nonce: &'a Nonce,
    pub(crate) node: &'a NodeId,
    /// The acceptor's address, as each end sees it: a man in the middle listens elsewhere and cannot pass the proof of
    /// one member on to the other.
    pub(crate) listener: SocketAddr,
}

impl DomainToken {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Secret::new(bytes))
    }

    pub(crate) fn prove(&self, end: End, claim: Claim<'_>) -> Proof {
        let listener = written(claim.listener);
        let node = claim.node.as_str().as_bytes();
        self.0.prove(label(end), &[claim.challenge, claim.nonce, node, listener.as_bytes()])
    }

    pub(crate) fn check(&self, end: End, claim: Claim<'_>, proof: &Proof) -> bool {
        let listener = written(claim.listener);
        let node = claim.node.as_str().as_bytes();
        self.0.check(label(end), &[claim.challenge, claim.nonce, node, listener.as_bytes()], proof)
    }
}

/// An address in the canonical form that both ends agree on.
fn written(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

fn label(end: End) -> &'static str {
    match end {
        End::Dialer => "phalanx dialer",
        End::Acceptor => "phalanx acceptor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_only_for_its_end_nonces_node_and_listener() {
        let token = DomainToken::new(&[7; 32]);
        let (node, other) = (NodeId::new("a-0001").unwrap(), NodeId::new("b").unwrap());
        let listener = SocketAddr::from(([127, 0, 0, 1], 4000));
        let claim = Claim { challenge: &[1; 16], nonce: &[2; 16], node: &node, listener };
        let proof = token.prove(End::Dialer, claim);
        assert!(token.check(End::Dialer, claim, &proof));
        assert!(!token.check(End::Acceptor, claim, &proof));
        let swapped = Claim { challenge: &[2; 16], nonce: &[1; 16], ..claim };
        assert!(!token.check(End::Dialer, swapped, &proof));
        assert!(!token.check(End::Dialer, Claim { node: &other, ..claim }, &proof));
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 4001));
        assert!(!token.check(End::Dialer, Claim { listener: elsewhere, ..claim }, &proof));
        let mapped = "[::ffff:127.0.0.1]:4000".parse().unwrap();
        assert!(token.check(End::Dialer, Claim { listener: mapped, ..claim }, &proof));
        assert!(!DomainToken::new(&[8; 32]).check(End::Dialer, claim, &proof));
    }
}
