use crate::address::{AddressError, StoreAddress};
use phalanx_types::DomainName;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a store is and how it is reached, as one text.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) place: Place,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) security: UrlSecurity,
}

/// What to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    At(StoreAddress),
    /// The stores that nodes of a domain announce.
    Domain,
}

/// How connections are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UrlSecurity {
    Plain,
    Tls(TlsFiles),
    /// With the key of a domain.
    Domain {
        domain: DomainName,
        key: Option<PathBuf>,
    },
}

/// Files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificates of the authorities that the server's may come from; the system's authorities when not given.
    pub(crate) ca: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl FromStr for StoreUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem| AddressError { text: hidden(text), problem };
        let plain = |address| Self {
            place: Place::At(address),
            user: None,
            password: None,
            security: UrlSecurity::Plain,
        };
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(plain(text.parse()?)) };
        if scheme == "unix" {
            return Ok(plain(text.parse()?));
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let options = options.split('&').filter(|option| !option.is_empty());
        let options: Vec<(&str, &str)> = options
            .map(|option| option.split_once('='))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("what follows `?` is NAME=VALUE"))?;
        let path = |name: &str| {
            options.iter().find(|(other, _)| *other == name).map(|(_, value)| PathBuf::from(unescaped(value)))
        };
        let known = |names: &[&str]| options.iter().all(|(name, _)| names.contains(name));
        let (login, hosts) =
            rest.rsplit_once('@').map_or((None, rest), |(login, hosts)| (Some(login), hosts));
        let hosts = hosts.trim_end_matches('/').trim_end_matches("/0");
        if scheme == "phalanx" {
            if !known(&["key"]) {
                return Err(wrong("after `?` a domain has key=FILE"));
            }
            let (name, place) = match login {
                Some(name) => (name, Place::At(hosts.parse().map_err(|_invalid| wrong(HOSTS))?)),
                None => (hosts, Place::Domain),
            };
            let domain = DomainName::new(name)
                .map_err(|_invalid| wrong("phalanx:// is followed by the name of a domain"))?;
            let security = UrlSecurity::Domain { domain, key: path("key") };
            return Ok(Self { place, user: None, password: None, security });
        }
        let (scheme, is_tls) = match scheme {
            "rediss" => ("redis", true),
            "rediss+cluster" => ("redis+cluster", true),
            other => (other, false),
        };
        if !known(if is_tls { &["ca", "cert", "key"] } else { &[] }) {
            return Err(wrong("after `?` rediss:// has ca=FILE, cert=FILE and key=FILE, the others nothing"));
        }
        let place = Place::At(
            format!("{scheme}://{hosts}").parse().map_err(|error: AddressError| wrong(error.problem))?,
        );
        let files = TlsFiles { ca: path("ca"), cert: path("cert"), key: path("key") };
        let security = if is_tls { UrlSecurity::Tls(files) } else { UrlSecurity::Plain };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => (some(user), some(password)),
        };
        Ok(Self { place, user, password, security })
    }
}

const HOSTS: &str = "it is phalanx://DOMAIN, or phalanx://DOMAIN@HOST:PORT";

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| unescaped(text))
}

/// The text without the password, for messages.
pub(crate) fn hidden(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, rest)), Some((_, hosts))) if scheme != "phalanx" && rest.contains('@') => {
            format!("{scheme}://…@{hosts}")
        }
        _ => text.to_owned(),
    }
}

/// Resolves `%XX`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = others.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = others.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the password.
        f.debug_struct("StoreUrl")
            .field("place", &self.place)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> StoreUrl {
        text.parse().unwrap()
    }

    #[test]
    fn urls_say_who_asks_and_how_it_is_protected() {
        let plain = url("redis://user:p%40ss@n1:6380/0");
        assert_eq!(plain.place, Place::At(StoreAddress::Tcp("n1:6380".into())));
        assert_eq!((plain.user.as_deref(), plain.password.as_deref()), (Some("user"), Some("p@ss")));
        assert_eq!(plain.security, UrlSecurity::Plain);
        let tls = url("rediss://:secret@n1:6380?ca=/a/ca.pem");
        let files = TlsFiles { ca: Some("/a/ca.pem".into()), ..TlsFiles::default() };
        assert_eq!((tls.security, tls.password.as_deref()), (UrlSecurity::Tls(files), Some("secret")));
        let cluster = url("rediss+cluster://a:1,b:2");
        assert_eq!(cluster.place, Place::At(StoreAddress::Cluster(vec!["a:1".into(), "b:2".into()])));
        let domain: DomainName = "lab".parse().unwrap();
        let security =
            |key: Option<&str>| UrlSecurity::Domain { domain: domain.clone(), key: key.map(Into::into) };
        assert_eq!(
            (url("phalanx://lab").place, url("phalanx://lab").security),
            (Place::Domain, security(None))
        );
        let at = url("phalanx://lab@n1:6780?key=k");
        assert_eq!(at.place, Place::At(StoreAddress::Tcp("n1:6780".into())));
        assert_eq!(at.security, security(Some("k")));
        assert_eq!(url("unix:///tmp/s").place, Place::At(StoreAddress::Unix("/tmp/s".into())));
    }

    #[test]
    fn wrong_urls_are_refused_without_their_password() {
        for text in [
            "redis://n1:1?ca=x",
            "rediss://n1:1?x",
            "rediss://n1:1?host=x",
            "phalanx://",
            "phalanx://lab@nowhere",
            "phalanx://lab?ca=x",
            "redis://a:secret@nowhere",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
