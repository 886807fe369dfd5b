use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// One server; `host:port`, `tcp://host:port` or `redis://host:port`.
    Tcp(String),
    /// A socket of this host; `unix:///path`.
    Unix(PathBuf),
    /// Some nodes of a Redis or Valkey cluster; `redis+cluster://host:port,host:port`, or a list of addresses.
    Cluster(Vec<String>),
}

/// Why a text is no address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of a store: {problem}")]
#[non_exhaustive]
pub struct AddressError {
    pub text: String,
    pub problem: &'static str,
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem| AddressError { text: text.to_owned(), problem };
        if let Some(path) = text.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(wrong("the path of a socket begins with `/`")),
            };
        }
        let (cluster, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("tcp" | "redis", rest)) => (false, rest),
            Some(("redis+cluster", rest)) => (true, rest),
            Some(_) => return Err(wrong("it begins with tcp://, redis://, redis+cluster:// or unix://")),
        };
        let hosts: Vec<String> = rest.trim_end_matches('/').split(',').map(str::to_owned).collect();
        let is_host = |host: &String| {
            let parts = host.rsplit_once(':');
            parts.is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
        };
        if !hosts.iter().all(is_host) {
            return Err(wrong("it is HOST:PORT, or several of them with commas"));
        }
        match <[String; 1]>::try_from(hosts) {
            Ok([one]) if cluster => Ok(Self::Cluster(vec![one])),
            Ok([one]) => Ok(Self::Tcp(one)),
            Err(several) => Ok(Self::Cluster(several)),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Cluster(hosts) => write!(f, "redis+cluster://{}", hosts.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let is = |text: &str| text.parse::<StoreAddress>().unwrap();
        assert_eq!(is("n1:6780"), StoreAddress::Tcp("n1:6780".into()));
        assert_eq!(is("redis://[::1]:6379/"), StoreAddress::Tcp("[::1]:6379".into()));
        assert_eq!(is("unix:///tmp/s"), StoreAddress::Unix("/tmp/s".into()));
        assert_eq!(is("a:1,b:2"), StoreAddress::Cluster(vec!["a:1".into(), "b:2".into()]));
        assert_eq!(is("redis+cluster://a:1"), StoreAddress::Cluster(vec!["a:1".into()]));
        for wrong in ["", "n1", "n1:x", ":1", "http://a:1", "unix://tmp", "a:1,,b:2"] {
            assert!(wrong.parse::<StoreAddress>().is_err(), "{wrong}");
        }
    }
}
