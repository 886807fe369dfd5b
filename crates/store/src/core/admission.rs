//! Who may use a store that speaks TLS.

/// How a client reached the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Plain,
    /// Encrypted, and the client showed no certificate.
    Tls,
    /// Encrypted, and the client's certificate is of the store's domain.
    Member,
}

/// What a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It needs no password.
    Trusted,
    /// It has to give the password, if there is one.
    Anyone,
    Refused(Turned),
}

/// Why a client is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It came from another host without encryption.
    NotEncrypted,
    /// It came from another host, and has neither a certificate nor a password to give.
    NoCertificate,
}

impl Turned {
    /// The reply that says what to do.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotEncrypted => {
                "NOAUTH from other hosts this store speaks TLS only: use rediss://, or phalanx:// with the domain key"
            }
            Self::NoCertificate => {
                "NOAUTH this store has no password: only members of its domain may use it, with the domain key"
            }
        }
    }
}

/// What is known of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) has_password: bool,
    /// Every host may use the store as clients of its own host may.
    pub(crate) is_open: bool,
}

/// Decides about a client, of a store that speaks TLS.
pub(crate) fn admit(rules: Rules, channel: Channel, is_loopback: bool) -> Admission {
    match channel {
        Channel::Member => Admission::Trusted,
        Channel::Plain | Channel::Tls if is_loopback || rules.is_open => Admission::Anyone,
        Channel::Plain => Admission::Refused(Turned::NotEncrypted),
        Channel::Tls if rules.has_password => Admission::Anyone,
        Channel::Tls => Admission::Refused(Turned::NoCertificate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_from_anywhere_and_others_need_a_reason() {
        let rules = |has_password, is_open| Rules { has_password, is_open };
        for (has_password, is_open) in [(false, false), (true, false), (false, true), (true, true)] {
            for is_loopback in [false, true] {
                let got = |channel| admit(rules(has_password, is_open), channel, is_loopback);
                assert_eq!(got(Channel::Member), Admission::Trusted);
                let free = is_loopback || is_open;
                let plain = if free { Admission::Anyone } else { Admission::Refused(Turned::NotEncrypted) };
                assert_eq!(got(Channel::Plain), plain);
                let tls = match free || has_password {
                    true => Admission::Anyone,
                    false => Admission::Refused(Turned::NoCertificate),
                };
                assert_eq!(got(Channel::Tls), tls);
            }
        }
    }
}
