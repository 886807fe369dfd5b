//! Why connections failed or were refused: named and counted.

use phalanx_wire::codec::CodecError;
use phalanx_wire::frame::FrameError;
use phalanx_wire::handshake::{PrefaceError, Refusal};
use phalanx_wire::relay::RelayRefusal;
use rustls::{AlertDescription, CertificateError};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock;

/// How often the same reason is logged in the long run; a stranger must not fill the log.
const WARN_PACE: Duration = Duration::from_secs(1);
/// How many warnings for the same reason may come at once, possibly about different nodes.
const WARN_BURST: u32 = 64;

/// Why a connection was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConnError {
    #[error("connection failed")]
    Io(#[from] std::io::Error),
    #[error("closed without a word")]
    Closed,
    #[error("the handshake took too long")]
    Timeout,
    #[error(transparent)]
    Preface(#[from] PrefaceError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("certificate refused: {0}")]
    Certificate(CertificateReason),
    #[error("not a TLS handshake of this domain")]
    Tls(#[source] rustls::Error),
    #[error("refused here: {0}")]
    RefusedHere(Refusal),
    #[error("refused by the other side: {0}")]
    RefusedThere(Refusal),
    #[error("refused by the relay: {0}")]
    Relay(RelayRefusal),
    #[error("no address to dial")]
    NoAddress,
}

/// The problem with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateReason {
    #[error("expired or not valid yet")]
    Expired,
    #[error("issued by another domain")]
    Foreign,
    #[error("missing")]
    Missing,
    #[error("malformed")]
    Malformed,
}

impl ConnError {
    /// The stable name under which it is counted and logged.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ConnError::Io(_) => "io",
            ConnError::Closed => "closed",
            ConnError::Timeout => "timeout",
            ConnError::Preface(PrefaceError::NotPhalanx) => "not-phalanx",
            ConnError::Preface(PrefaceError::Version { .. }) => "version",
            ConnError::Preface(_) => "purpose",
            ConnError::Frame(FrameError::TooLong { .. }) => "too-long",
            ConnError::Frame(FrameError::UnknownKind(_)) => "unknown-kind",
            ConnError::Frame(FrameError::Truncated { .. }) => "truncated",
            ConnError::Frame(_) => "unexpected-frame",
            ConnError::Codec(_) => "malformed",
            ConnError::Certificate(CertificateReason::Expired) => "certificate-expired",
            ConnError::Certificate(CertificateReason::Foreign) => "certificate-foreign",
            ConnError::Certificate(CertificateReason::Missing) => "certificate-missing",
            ConnError::Certificate(CertificateReason::Malformed) => "certificate-malformed",
            ConnError::Tls(_) => "tls",
            ConnError::RefusedHere(refusal) | ConnError::RefusedThere(refusal) => refusal_name(refusal),
            ConnError::Relay(_) => "relay",
            ConnError::NoAddress => "no-address",
        }
    }

    /// Whether it is a normal part of two nodes agreeing on one link, and not reported to the user.
    pub(crate) fn is_ordinary(&self) -> bool {
        match self {
            ConnError::Closed
            | ConnError::RefusedHere(Refusal::Duplicate | Refusal::Myself | Refusal::Stopping)
            | ConnError::RefusedThere(Refusal::Duplicate | Refusal::Myself | Refusal::Stopping) => true,
            // A node that gives up in the middle may close with a reset.
            ConnError::Io(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }

    /// Whether one of the two sides does not take the other for a member, or not for one that it can talk to. A side
    /// that is not there, is slow or closes without a word has refused nothing.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            ConnError::Io(_) | ConnError::Closed | ConnError::Timeout | ConnError::NoAddress => false,
            ConnError::Relay(reason) => matches!(reason, RelayRefusal::BadProof),
            _ => !self.is_ordinary(),
        }
    }

    /// Extracts a TLS error from an IO error.
    pub(crate) fn from_io(error: std::io::Error) -> Self {
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).cloned();
        match inner {
            Some(rustls::Error::InvalidCertificate(reason)) => ConnError::Certificate(match reason {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => CertificateReason::Expired,
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    CertificateReason::Foreign
                }
                _ => CertificateReason::Malformed,
            }),
            Some(rustls::Error::NoCertificatesPresented) => {
                ConnError::Certificate(CertificateReason::Missing)
            }
            Some(rustls::Error::AlertReceived(alert)) => match alert {
                AlertDescription::CertificateExpired => ConnError::Certificate(CertificateReason::Expired),
                AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                    ConnError::Certificate(CertificateReason::Foreign)
                }
                AlertDescription::CertificateRequired => ConnError::Certificate(CertificateReason::Missing),
                _ => ConnError::Tls(rustls::Error::AlertReceived(alert)),
            },
            Some(other) => ConnError::Tls(other),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => ConnError::Closed,
            None => ConnError::Io(error),
        }
    }
}

fn refusal_name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::WrongDomain { .. } => "wrong-domain",
        Refusal::BadProof => "bad-proof",
        Refusal::IdentityMismatch { .. } => "identity-mismatch",
        Refusal::Duplicate => "duplicate",
        Refusal::Myself => "myself",
        Refusal::IdTaken { .. } => "id-taken",
        Refusal::UnknownLink { .. } => "unknown-link",
        Refusal::Stopping => "stopping",
        Refusal::Busy => "busy",
        _ => "refused",
    }
}

/// How many connections failed or were refused, by the name of the reason.
#[derive(Debug, Default)]
pub(crate) struct RefusalStats(Mutex<BTreeMap<&'static str, Counted>>);

#[derive(Debug, Default)]
struct Counted {
    times: u64,
    /// Warnings that count against the limit; they expire with time.
    warned: u32,
    since: Option<Instant>,
}

impl RefusalStats {
    pub(crate) fn count(&self, name: &'static str) {
        lock(&self.0).entry(name).or_default().times += 1;
    }

    /// Whether to warn the user: a few times, then at intervals for each reason.
    pub(crate) fn is_worth_a_warning(&self, name: &'static str, now: Instant) -> bool {
        let mut all = lock(&self.0);
        let counted = all.entry(name).or_default();
        let since = *counted.since.get_or_insert(now);
        let paid = u32::try_from(now.duration_since(since).as_millis() / WARN_PACE.as_millis());
        let paid = paid.unwrap_or(u32::MAX);
        if paid > 0 {
            counted.warned = counted.warned.saturating_sub(paid);
            counted.since = Some(now);
        }
        let worth = counted.warned < WARN_BURST;
        counted.warned += u32::from(worth);
        worth
    }

    pub(crate) fn snapshot(&self) -> Vec<(String, u64)> {
        lock(&self.0).iter().map(|(name, counted)| ((*name).to_owned(), counted.times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_each_reason_is_worth_one_warning_a_second() {
        let (stats, start) = (RefusalStats::default(), Instant::now());
        let warns = |name, ms| stats.is_worth_a_warning(name, start + Duration::from_millis(ms));
        assert!((0..WARN_BURST).all(|_| warns("tls", 0)));
        let asked = [("tls", 0), ("tls", 999), ("version", 999), ("tls", 1000), ("tls", 1001)];
        assert_eq!(asked.map(|(name, ms)| warns(name, ms)), [false, false, true, true, false]);
    }
}
