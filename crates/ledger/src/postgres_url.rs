//! `postgres://…?sslmode=verify-full`: how a connection is secured, in the words of PostgreSQL's own clients.

use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How a connection is encrypted, and what is checked before anything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    /// If the server can, and without any check.
    Prefer,
    /// Without any check.
    Require,
    /// The server's certificate is signed by an authority that is known.
    VerifyCa,
    /// It also is for the host that was asked for.
    VerifyFull,
}

/// The authorities whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Authorities {
    /// Where PostgreSQL's own clients look: `~/.postgresql/root.crt`.
    Usual,
    /// Those that the system knows.
    System,
    File(PathBuf),
}

/// What a URL of a PostgreSQL server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostgresUrl {
    pub(crate) config: Config,
    pub(crate) mode: TlsMode,
    pub(crate) authorities: Authorities,
}

impl PostgresUrl {
    /// # Errors
    /// The text cannot be understood, or asks for less than its other words.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (rest, mode, authorities) = take_ours(text)?;
        let mut config: Config = rest.parse().map_err(|_bad| "PostgreSQL's client does not understand it")?;
        let (mode, authorities) = settle(mode, authorities)?;
        let reaches_hosts = config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        if config.get_hosts().is_empty() {
            // Encryption asks for the name of the host.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        config.ssl_mode(match mode {
            // A socket of this host is not encrypted.
            _ if !reaches_hosts && config.get_hostaddrs().is_empty() => SslMode::Disable,
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        Ok(Self { config, mode, authorities })
    }
}

/// The URL without the parameters that PostgreSQL's Rust client does not know, and these.
fn take_ours(text: &str) -> Result<(String, Option<TlsMode>, Option<Authorities>), &'static str> {
    let user_ends = text.find('@').unwrap_or(0);
    let Some(at) = text[user_ends..].find('?').map(|at| user_ends + at) else {
        return Ok((text.to_owned(), None, None));
    };
    let (mut mode, mut authorities, mut others) = (None, None, Vec::new());
    for parameter in text[at + 1..].split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(mode_of(value)?),
            Some(("sslrootcert", value)) => authorities = Some(authorities_of(value)?),
            _ => others.push(parameter),
        }
    }
    let rest = match others.is_empty() {
        true => text[..at].to_owned(),
        false => format!("{}?{}", &text[..at], others.join("&")),
    };
    Ok((rest, mode, authorities))
}

fn mode_of(value: &str) -> Result<TlsMode, &'static str> {
    Ok(match value {
        "disable" => TlsMode::Disable,
        "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        _ => return Err("sslmode is disable, prefer, require, verify-ca or verify-full"),
    })
}

fn authorities_of(value: &str) -> Result<Authorities, &'static str> {
    match decoded(value).as_deref() {
        Some("system") => Ok(Authorities::System),
        Some(path) if !path.is_empty() => Ok(Authorities::File(PathBuf::from(path))),
        _ => Err("sslrootcert is a file or `system`"),
    }
}

/// What is meant where one parameter says something about the other, as PostgreSQL's own clients take it.
fn settle(
    mode: Option<TlsMode>,
    authorities: Option<Authorities>,
) -> Result<(TlsMode, Authorities), &'static str> {
    let mode = match (&authorities, mode) {
        (None, mode) => mode.unwrap_or(TlsMode::Prefer),
        (Some(Authorities::System), None | Some(TlsMode::VerifyFull)) => TlsMode::VerifyFull,
        (Some(Authorities::System), _) => return Err("sslrootcert=system needs sslmode=verify-full"),
        // Whoever names an authority wants it to be asked.
        (Some(_), Some(TlsMode::Require)) => TlsMode::VerifyCa,
        (Some(_), Some(mode @ (TlsMode::VerifyCa | TlsMode::VerifyFull))) => mode,
        (Some(_), None | Some(TlsMode::Disable | TlsMode::Prefer)) => {
            return Err("sslrootcert needs sslmode=verify-full, verify-ca or require");
        }
    };
    Ok((mode, authorities.unwrap_or(Authorities::Usual)))
}

/// A value without its percent signs; `None` if that is no text.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(parameters: &str) -> Result<(TlsMode, SslMode), &'static str> {
        let url = PostgresUrl::parse(&format!("postgres://me:pass?word@db.example/runs{parameters}"))?;
        assert_eq!((url.config.get_user(), url.config.get_dbname()), (Some("me"), Some("runs")));
        Ok((url.mode, url.config.get_ssl_mode()))
    }

    #[test]
    fn modes_are_those_of_postgresqls_own_clients() {
        assert_eq!(mode(""), Ok((TlsMode::Prefer, SslMode::Prefer)));
        assert_eq!(mode("?sslmode=disable"), Ok((TlsMode::Disable, SslMode::Disable)));
        assert_eq!(mode("?sslmode=require"), Ok((TlsMode::Require, SslMode::Require)));
        let asked = "?connect_timeout=3&sslmode=verify-full&application_name=x";
        assert_eq!(mode(asked), Ok((TlsMode::VerifyFull, SslMode::Require)));
        let named = "?sslmode=require&sslrootcert=ca.pem";
        assert_eq!(
            mode(named),
            Ok((TlsMode::VerifyCa, SslMode::Require)),
            "an authority is asked if it is named"
        );
        assert_eq!(mode("?sslrootcert=system"), Ok((TlsMode::VerifyFull, SslMode::Require)));
        for wrong in [
            "?sslmode=allow",
            "?sslmode=",
            "?sslmode=verify-full&sslrootcert=",
            "?sslmode=verify-full&sslrootcert=%zz",
            "?sslmode=verify-ca&sslrootcert=system",
            "?sslrootcert=ca.pem",
            "?sslmode=prefer&sslrootcert=ca.pem",
            "?sslcert=x",
        ] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_parameters_and_places_stay() {
        let text = "postgres://h/d?connect_timeout=3&sslmode=verify-ca&sslrootcert=%2Fetc%2Fmy%20ca.pem";
        let url = PostgresUrl::parse(text).unwrap();
        assert_eq!(url.config.get_connect_timeout(), Some(&std::time::Duration::from_secs(3)));
        assert_eq!(url.authorities, Authorities::File("/etc/my ca.pem".into()));
        // A socket of this host has no encryption, whatever is asked.
        let local = PostgresUrl::parse("postgres://me@%2Frun%2Fpostgresql/runs?sslmode=require").unwrap();
        assert_eq!(local.config.get_ssl_mode(), SslMode::Disable);
        let address = PostgresUrl::parse("postgres:///runs?hostaddr=10.0.0.1&sslmode=require").unwrap();
        assert_eq!(address.config.get_hosts(), [Host::Tcp("10.0.0.1".to_owned())]);
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
    }
}
