//! Connections to a real PostgreSQL with certificates of an authority of this test.

use super::Workplace;
use super::files::Truth;
use super::server::TcpServer;
use crate::shell::testing::connect;
use crate::{Ledger, LedgerError, LedgerUrl, SqlError, TlsError};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

/// An authority that signs certificates of servers.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a host, and its key.
    fn sign(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Servers and the files that their clients have.
struct Site {
    /// Its certificate is for `127.0.0.1`.
    server: TcpServer,
    /// Its certificate is for another host.
    elsewhere: TcpServer,
    without_tls: TcpServer,
    files: TempDir,
}

impl Site {
    fn get() -> &'static Self {
        static SITE: OnceLock<Site> = OnceLock::new();
        SITE.get_or_init(|| {
            let (ours, other) = (Authority::new("ours"), Authority::new("other"));
            let certificate = ours.sign("127.0.0.1");
            let files = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
            write("ours.pem", &ours.certificate);
            write("other.pem", &other.certificate);
            write("itself.pem", &certificate.0);
            write("empty.pem", "no certificate");
            Self {
                server: TcpServer::start(Some(certificate)),
                elsewhere: TcpServer::start(Some(ours.sign("db.example"))),
                without_tls: TcpServer::start(None),
                files,
            }
        })
    }

    /// `?sslmode=…&sslrootcert=…`
    fn asked(&self, mode: &str, file: &str) -> String {
        let path = self.files.path().join(file).to_str().unwrap().replace('/', "%2F");
        format!("?sslmode={mode}&sslrootcert={path}")
    }
}

/// The version of TLS that the server says the connection has; `None` if it has none.
fn encrypted(url: &str) -> Result<Option<String>, LedgerError> {
    let mut version = None;
    let find = "select version from pg_stat_ssl where pid = pg_backend_pid()";
    let mut sql = connect(&LedgerUrl::parse(url).unwrap().unwrap())?;
    sql.query(find, &[], &mut |row| version = row.text(0)).unwrap();
    Ok(version)
}

/// Why a connection is refused, and what the user is told to do.
fn refused(url: &str) -> (TlsError, String) {
    let error = encrypted(url).unwrap_err();
    let hint = error.hint().unwrap();
    match error {
        LedgerError::Open { source: SqlError::Tls(error), .. } => (error, hint),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_comes_into_a_ledger_over_a_connection_that_was_verified() {
    let site = Site::get();
    let url = site.server.new_database(&site.asked("verify-full", "ours.pem"));
    assert_eq!(encrypted(&url).unwrap().as_deref(), Some("TLSv1.3"));
    let place = Workplace::new(|_runs| LedgerUrl::parse(&url).unwrap().unwrap());
    let mut run = place.run("run");
    run.steps(5000);
    let ledger = Ledger::open(&place.url).unwrap();
    ledger.feed(&run.path).unwrap();
    assert_eq!(Truth::of_ledger(&ledger, &run.uid), Truth::of_files(&run.path));
}

#[test]
fn each_mode_encrypts_and_checks_what_it_says() {
    let site = Site::get();
    let version = |url: String| encrypted(&url).unwrap();
    let tls13 = Some("TLSv1.3".to_owned());
    assert_eq!(version(site.server.new_database("")), tls13, "it is preferred");
    assert_eq!(version(site.server.new_database("?sslmode=prefer")), tls13);
    assert_eq!(version(site.server.new_database("?sslmode=require")), tls13);
    assert_eq!(version(site.server.new_database("?sslmode=disable")), None);
    assert_eq!(version(site.server.new_database(&site.asked("verify-ca", "ours.pem"))), tls13);
    assert_eq!(version(site.elsewhere.new_database(&site.asked("verify-ca", "ours.pem"))), tls13);
    let itself = site.asked("verify-full", "itself.pem");
    assert_eq!(version(site.server.new_database(&itself)), tls13, "a server's own certificate names it");
    assert_eq!(version(site.without_tls.new_database("")), None, "there is none to prefer");
    assert_eq!(version(site.server.unencrypted("")), None, "the server does not want it here");
}

#[test]
fn a_server_that_cannot_be_trusted_is_refused_with_the_reason() {
    let site = Site::get();
    for mode in ["verify-full", "verify-ca", "require"] {
        let (error, hint) = refused(&site.server.new_database(&site.asked(mode, "other.pem")));
        assert!(matches!(error, TlsError::UnknownAuthority), "{mode}: {error:?}");
        assert!(hint.contains("sslrootcert=FILE"), "{hint}");
    }
    let (error, hint) = refused(&site.elsewhere.new_database(&site.asked("verify-full", "ours.pem")));
    assert!(
        matches!(&error, TlsError::OtherHost(why) if why.to_string().contains("db.example")),
        "{error:?}"
    );
    assert!(hint.contains("subjectAltName"), "{hint}");
    for file in ["empty.pem", "nothing.pem"] {
        let (error, _) = refused(&site.server.new_database(&site.asked("verify-full", file)));
        assert!(matches!(&error, TlsError::Authorities { path, .. } if path.ends_with(file)), "{error:?}");
    }
    // The system's authorities have not signed it.
    if Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        let (error, _) = refused(&site.server.new_database("?sslrootcert=system"));
        assert!(matches!(error, TlsError::UnknownAuthority), "{error:?}");
    }
}

#[test]
fn encryption_that_is_required_is_not_left_out() {
    let site = Site::get();
    for url in
        [site.without_tls.new_database("?sslmode=require"), site.server.unencrypted("?sslmode=require")]
    {
        let error = encrypted(&url).unwrap_err();
        assert!(matches!(error, LedgerError::Open { .. }), "{error:?}");
    }
}
