//! Encrypted stores: members by the domain's key, others by password; redis-cli as it is.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx_fabric::DomainKey;
use phalanx_store::{Server, ServerConfig, ServerTls};
use phalanx_store_client::{Store, StoreError, StoreOptions};
use phalanx_types::{DType, DomainName, NodeId, Tensor};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A store of domain `lab` that listens on every interface.
struct Secure {
    runtime: tokio::runtime::Runtime,
    server: Option<Server>,
    directory: TempDir,
    key: DomainKey,
}

fn saved_key(directory: &Path, domain: &str, file: &str) -> DomainKey {
    let key = DomainKey::generate(&DomainName::new(domain).unwrap()).unwrap();
    key.save(&directory.join(file)).unwrap();
    key
}

impl Secure {
    fn start(config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = saved_key(directory.path(), "lab", "lab.key");
        std::fs::write(directory.path().join("ca.pem"), key.authority_pem()).unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let node = NodeId::new("store-0001").unwrap();
        let tls = ServerTls::for_members(key.service_tls(&node, &names).unwrap());
        let bind = Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let config = ServerConfig { bind, tls: Some(tls), ..config };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = Some(runtime.block_on(Server::start(config)).unwrap());
        Self { runtime, server, directory, key }
    }

    fn port(&self) -> u16 {
        self.server.as_ref().unwrap().address().unwrap().port()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn connect(&self, url: &str) -> Result<Store, StoreError> {
        Store::connect(url, StoreOptions::default())
    }

    /// The address of a member by the key of this store.
    fn member(&self, host: IpAddr) -> String {
        format!("phalanx://lab@{host}:{}?key={}", self.port(), self.file("lab.key").display())
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.runtime.block_on(self.server.take().unwrap().shutdown());
    }
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An address of this host that is not loopback, if it has one.
fn interface() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this only asks which address would be used.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

fn tensor(len: usize, seed: u8) -> Tensor {
    let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    Tensor::new(DType::U8, vec![len as u64], data.into()).unwrap()
}

#[test]
fn members_use_the_store_by_the_domain_key_alone() {
    let store = Secure::start(ServerConfig { password: Some("secret".into()), ..ServerConfig::default() });
    for host in [Some(HERE), interface()].into_iter().flatten() {
        let member = store.connect(&store.member(host)).unwrap();
        for len in [1, 1000, 40_000, 3 << 20] {
            member.put("x", &tensor(len, 7)).unwrap();
            assert_eq!(member.get("x").unwrap(), tensor(len, 7), "{len}");
        }
        let names: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
        let value = tensor(20_000, 1);
        member.put_all(names.iter().map(|name| (name.as_str(), &value))).unwrap();
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(member.get_all(&asked).unwrap().into_iter().all(|found| found == Some(value.clone())));
        // The same without shared memory: all of it is encrypted.
        let options = StoreOptions { no_shared_memory: true, ..StoreOptions::default() };
        let sent = Store::connect(&store.member(host), options).unwrap();
        sent.put("large", &tensor(20 << 20, 3)).unwrap();
        assert_eq!(sent.get("large").unwrap(), tensor(20 << 20, 3));
    }
}

#[test]
fn keys_of_other_domains_and_missing_ones_are_told_apart() {
    let store = Secure::start(ServerConfig::default());
    let port = store.port();
    saved_key(store.directory.path(), "lab", "forged.key");
    let forged = format!("phalanx://lab@127.0.0.1:{port}?key={}", store.file("forged.key").display());
    let error = store.connect(&forged).unwrap_err();
    assert!(
        matches!(error, StoreError::Tls { .. }) && error.hint().unwrap().contains("authority"),
        "{error:?}"
    );
    let other = format!("phalanx://other@127.0.0.1:{port}?key={}", store.file("lab.key").display());
    assert!(matches!(store.connect(&other), Err(StoreError::OtherDomain { .. })));
    let missing = format!("phalanx://nowhere-{port}@127.0.0.1:{port}");
    assert!(matches!(store.connect(&missing), Err(StoreError::NoKey { .. })));
    let absent = format!("phalanx://lab@127.0.0.1:{port}?key={}", store.file("absent.key").display());
    assert!(matches!(store.connect(&absent), Err(StoreError::DomainKey(_))));
    // Another authority than the server's.
    let stranger = saved_key(store.directory.path(), "else", "else.key");
    std::fs::write(store.file("else.pem"), stranger.authority_pem()).unwrap();
    let wrong = format!("rediss://127.0.0.1:{port}?ca={}", store.file("else.pem").display());
    assert!(matches!(store.connect(&wrong), Err(StoreError::Tls { .. })));
    assert!(store.key.authority_pem().starts_with("-----BEGIN CERTIFICATE-----"));
}

#[test]
fn others_need_encryption_and_the_password() {
    let Some(outside) = interface() else { return };
    let with = Secure::start(ServerConfig { password: Some("secret".into()), ..ServerConfig::default() });
    let (port, ca) = (with.port(), with.file("ca.pem"));
    let refused = |store: Result<Store, StoreError>| match store.unwrap_err() {
        StoreError::Refused { text } => text,
        other => panic!("{other:?}"),
    };
    // By loopback: encrypted or not, with the password.
    with.connect(&format!("redis://:secret@127.0.0.1:{port}")).unwrap().put("x", &tensor(3, 1)).unwrap();
    let url = format!("rediss://:secret@localhost:{port}?ca={}", ca.display());
    assert_eq!(with.connect(&url).unwrap().get("x").unwrap(), tensor(3, 1));
    assert!(refused(with.connect(&format!("redis://127.0.0.1:{port}"))).starts_with("NOAUTH"));
    // From elsewhere: not without encryption, whatever the password.
    assert!(refused(with.connect(&format!("redis://:secret@{outside}:{port}"))).contains("TLS only"));
    drop(with);
    // A store without a password is for members, and for its own host.
    let without = Secure::start(ServerConfig::default());
    let port = without.port();
    without.connect(&format!("redis://127.0.0.1:{port}")).unwrap();
    assert!(refused(without.connect(&format!("redis://{outside}:{port}"))).contains("TLS only"));
    let raw = Command::new("redis-cli")
        .args(["-h", &outside.to_string(), "-p", &port.to_string(), "--tls", "--cacert"])
        .arg(without.file("ca.pem"))
        .arg("ping")
        .output();
    if let Ok(output) = raw {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("only members of its domain"), "{output:?}");
    }
}

#[test]
fn redis_cli_speaks_tls_with_the_store() {
    let store = Secure::start(ServerConfig { password: Some("secret".into()), ..ServerConfig::default() });
    let cli = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &store.port().to_string(), "--tls", "--cacert"]);
        command.arg(store.file("ca.pem")).args(["--no-auth-warning", "-a", "secret"]).args(words);
        command.output()
    };
    let Ok(output) = cli(&["set", "a", "1"]) else {
        assert!(std::env::var_os("PHALANX_REQUIRE_REDIS").is_none(), "redis-cli is not installed");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK", "{output:?}");
    assert_eq!(cli(&["incr", "a"]).unwrap().stdout, b"2\n");
}

#[test]
fn bytes_that_are_no_handshake_close_one_connection_only() {
    let store = Secure::start(ServerConfig::default());
    let mut garbage = TcpStream::connect((HERE, store.port())).unwrap();
    garbage.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]).unwrap();
    garbage.write_all(&vec![7; 70_000]).unwrap_or_default();
    let mut said = Vec::new();
    let _closed = garbage.read_to_end(&mut said);
    // One that says nothing does not keep others out.
    let _silent = TcpStream::connect((HERE, store.port())).unwrap();
    store.connect(&store.member(HERE)).unwrap().put("x", &tensor(3, 1)).unwrap();
}
