//! Decides which requests are let in, and what they may do. Pure.
//!
//! ```text
//!   Host ──► a name of this server?      else a page of another name reads ours (DNS rebinding)
//!   Origin ► our own?                    else a page of another site asks
//!   token ─► read or act                 beyond loopback
//!   POST ──► Origin and X-Phalanx        which no form and no foreign page can send
//! ```

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeSet;

/// The name of the cookie that holds a token.
pub(crate) const COOKIE: &str = "phalanx_token";

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Look.
    Read,
    /// Look, cancel, stop, tag.
    Act,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error("this server does not have the name that the request gives in Host")]
    Host,
    #[error("the request comes from a page of another site")]
    Origin,
    #[error("a request that changes something needs the headers Origin and X-Phalanx: 1")]
    Header,
    #[error("the request has no valid token")]
    Token,
    #[error("this dashboard is read-only; start it with --control to act")]
    ReadOnly,
}

/// What a request says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Whether it changes something: any method but GET and HEAD.
    pub changes: bool,
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`, which browsers set.
    pub fetch_site: Option<&'a str>,
    /// `X-Phalanx`.
    pub marked: Option<&'a str>,
    pub cookie: Option<&'a str>,
    pub authorization: Option<&'a str>,
}

/// A secret that lets its bearer in. Only a keyed hash is kept.
struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
    access: Access,
}

/// The rules of a server.
pub struct Gate {
    /// Names in lower case, without ports.
    names: BTreeSet<String>,
    tls: bool,
    /// Without tokens every request that passes the other rules has `open`.
    tokens: Vec<Token>,
    open: Access,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("names", &self.names).field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// 128 random bits in hexadecimal digits; `None` if the system has none.
pub fn new_token() -> Option<String> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Gate {
    /// For a server that only this host can reach: all may look, and act if `control`.
    pub fn loopback(control: bool) -> Self {
        let names = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        let open = if control { Access::Act } else { Access::Read };
        Self { names, tls: false, tokens: Vec::new(), open }
    }

    /// Accepts requests for another name or address of this server.
    pub fn named(mut self, name: &str) -> Self {
        let name = name.to_lowercase();
        self.names.insert(if name.contains(':') && !name.starts_with('[') {
            format!("[{name}]")
        } else {
            name
        });
        self
    }

    /// Clients reach this server by TLS.
    pub fn over_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Lets in who has this token. With the first token, all others are refused.
    pub fn with_token(mut self, token: &str, access: Access) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"phalanx dashboard token");
        let tag = hmac::sign(&key, token.as_bytes());
        self.tokens.push(Token { key, tag, access });
        self
    }

    /// Whether cookies may only travel encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls
    }

    /// What the bearer of this token may do. Takes the same time for every wrong token.
    pub(crate) fn bearer(&self, token: &str) -> Option<Access> {
        let valid = |known: &&Token| hmac::verify(&known.key, token.as_bytes(), known.tag.as_ref()).is_ok();
        self.tokens.iter().filter(valid).map(|known| known.access).max()
    }

    /// Whether the request names this server, and no page of another site sent it.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_place(&self, asked: &Asked<'_>) -> Result<(), Refused> {
        let host = asked.host.ok_or(Refused::Host)?.to_lowercase();
        if !self.names.contains(without_port(&host)) {
            return Err(Refused::Host);
        }
        let scheme = if self.tls { "https://" } else { "http://" };
        let own = |origin: &str| origin.to_lowercase().strip_prefix(scheme) == Some(host.as_str());
        if asked.origin.is_some_and(|origin| !own(origin)) {
            return Err(Refused::Origin);
        }
        Ok(())
    }

    /// Decides about a request of the page or of a program that reads.
    ///
    /// # Errors
    /// It is refused.
    pub fn admit(&self, asked: &Asked<'_>) -> Result<Access, Refused> {
        self.check_place(asked)?;
        let access = self.access(asked)?;
        if !asked.changes {
            return Ok(access);
        }
        if asked.origin.is_none() || asked.marked != Some("1") {
            return Err(Refused::Header);
        }
        if access < Access::Act { Err(Refused::ReadOnly) } else { Ok(access) }
    }

    /// Decides about a request of a program that speaks a foreign protocol, like a client of MLflow: it may change
    /// what that protocol changes, if no browser sent it.
    ///
    /// # Errors
    /// It is refused.
    pub fn admit_program(&self, asked: &Asked<'_>) -> Result<Access, Refused> {
        self.check_place(asked)?;
        let access = self.access(asked)?;
        let browser = asked.origin.is_some() || asked.fetch_site.is_some();
        if asked.changes && browser {
            return Err(Refused::Origin);
        }
        let may_act = self.tokens.is_empty() || access == Access::Act;
        if asked.changes && !may_act { Err(Refused::ReadOnly) } else { Ok(access) }
    }

    fn access(&self, asked: &Asked<'_>) -> Result<Access, Refused> {
        if self.tokens.is_empty() {
            return Ok(self.open);
        }
        let in_header = asked.authorization.and_then(|value| value.strip_prefix("Bearer "));
        let given = in_header.into_iter().chain(asked.cookie.into_iter().flat_map(cookie_tokens));
        given.filter_map(|token| self.bearer(token.trim())).max().ok_or(Refused::Token)
    }
}

fn cookie_tokens(cookies: &str) -> impl Iterator<Item = &str> {
    let named = |cookie: &str| cookie.trim().split_once('=').is_some_and(|(name, _)| name == COOKIE);
    let tokens = cookies.split(';').filter(move |cookie| named(cookie));
    tokens.filter_map(|cookie| cookie.split_once('=').map(|(_, token)| token))
}

fn without_port(host: &str) -> &str {
    let in_brackets = host.find(']').map(|end| &host[..=end]);
    in_brackets.unwrap_or_else(|| host.split_once(':').map_or(host, |(name, _port)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(host: &str) -> Asked<'_> {
        Asked { host: Some(host), ..Asked::default() }
    }

    fn post<'a>(host: &'a str, origin: &'a str) -> Asked<'a> {
        Asked { changes: true, host: Some(host), origin: Some(origin), marked: Some("1"), ..Asked::default() }
    }

    #[test]
    fn only_names_of_this_server_are_served() {
        let gate = Gate::loopback(false).named("Lab.example").named("fe80::1");
        for host in
            ["localhost:7070", "127.0.0.1", "[::1]:7070", "lab.example:1", "LOCALHOST", "[fe80::1]:80"]
        {
            assert_eq!(gate.admit(&get(host)), Ok(Access::Read), "{host}");
        }
        for host in
            ["evil.example:7070", "localhost.evil.example", "", "127.0.0.1.nip.io", "[::1", "[::2]:7070"]
        {
            assert_eq!(gate.admit(&get(host)), Err(Refused::Host), "{host}");
        }
        assert_eq!(gate.admit(&Asked::default()), Err(Refused::Host));
    }

    #[test]
    fn pages_of_other_sites_and_plain_forms_change_nothing() {
        let gate = Gate::loopback(true);
        assert_eq!(gate.admit(&post("localhost:7070", "http://localhost:7070")), Ok(Access::Act));
        for origin in ["http://evil.example", "http://localhost:7071", "https://localhost:7070", "null"] {
            assert_eq!(gate.admit(&post("localhost:7070", origin)), Err(Refused::Origin), "{origin}");
        }
        let good = post("localhost:7070", "http://localhost:7070");
        assert_eq!(gate.admit(&Asked { marked: None, ..good }), Err(Refused::Header));
        assert_eq!(gate.admit(&Asked { origin: None, ..good }), Err(Refused::Header));
        assert_eq!(Gate::loopback(false).admit(&good), Err(Refused::ReadOnly));
    }

    #[test]
    fn with_tokens_only_their_bearers_are_served() {
        let (read, act) = (new_token().unwrap(), new_token().unwrap());
        let gate =
            Gate::loopback(false).over_tls().with_token(&read, Access::Read).with_token(&act, Access::Act);
        let host = get("localhost:7070");
        assert_eq!(gate.admit(&host), Err(Refused::Token));
        let forged = format!("{}0", &read[1..]);
        for wrong in ["", "0", forged.as_str(), &read[..31]] {
            let bearer = format!("Bearer {wrong}");
            assert_eq!(gate.admit(&Asked { authorization: Some(&bearer), ..host }), Err(Refused::Token));
        }
        let bearer = format!("Bearer {read}");
        assert_eq!(gate.admit(&Asked { authorization: Some(&bearer), ..host }), Ok(Access::Read));
        let cookie = format!("a=b; {COOKIE}={act}");
        let acting = Asked { cookie: Some(&cookie), ..post("localhost:7070", "https://localhost:7070") };
        assert_eq!(gate.admit(&acting), Ok(Access::Act));
        let cookie = format!("{COOKIE}={read}");
        assert_eq!(gate.admit(&Asked { cookie: Some(&cookie), ..acting }), Err(Refused::ReadOnly));
        let other = format!("x{COOKIE}={act}");
        assert_eq!(gate.admit(&Asked { cookie: Some(&other), ..acting }), Err(Refused::Token));
    }

    #[test]
    fn programs_may_log_and_browsers_may_not_pretend_to_be_one() {
        let gate = Gate::loopback(false);
        let program = Asked { changes: true, ..get("127.0.0.1:7070") };
        assert_eq!(gate.admit_program(&program), Ok(Access::Read));
        let form = Asked { origin: Some("http://evil.example"), ..program };
        assert_eq!(gate.admit_program(&form), Err(Refused::Origin));
        let silent = Asked { fetch_site: Some("cross-site"), ..program };
        assert_eq!(gate.admit_program(&silent), Err(Refused::Origin));
        let gate = gate.with_token("secret", Access::Read);
        let read = Asked { authorization: Some("Bearer secret"), ..program };
        assert_eq!(gate.admit_program(&read), Err(Refused::ReadOnly));
    }
}
