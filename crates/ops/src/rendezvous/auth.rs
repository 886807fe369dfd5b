//! Proof that both sides of a connection know the secret, which never travels.

use super::frame::{read_frame, write_frame};
use ring::hmac;
use std::fmt;
use std::io::{self, Read, Write};

const NONCE: usize = 32;

/// What ranks of one program know and others do not. Without one every process that reaches the port may join.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A new secret.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random() -> io::Result<Self> {
        random_bytes::<NONCE>().map(|bytes| Self(bytes.to_vec()))
    }

    /// Reads what [`Secret::to_hex`] wrote.
    pub fn from_hex(text: &str) -> Option<Self> {
        if !text.len().is_multiple_of(2) || !text.is_ascii() {
            return None;
        }
        let byte = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
        (0..text.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>().map(Self)
    }

    /// For an environment variable of a process that may know it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(…)" })
    }
}

/// The side that connects proves itself and checks the other.
pub(crate) fn connect(mut stream: impl Read + Write, secret: &Secret) -> io::Result<()> {
    let theirs = read_frame(&mut stream, NONCE)?;
    let ours = random_bytes::<NONCE>()?;
    let proof = hmac::sign(&secret.key(), &[b"guest".as_slice(), &theirs, &ours].concat());
    write_frame(&mut stream, &ours)?;
    write_frame(&mut stream, proof.as_ref())?;
    let proof = read_frame(&mut stream, NONCE)?;
    let signed = [b"host".as_slice(), &ours, &theirs].concat();
    hmac::verify(&secret.key(), &signed, &proof).map_err(|_unspecified| refused())
}

/// The side that accepts checks the other and proves itself.
pub(crate) fn accept(mut stream: impl Read + Write, secret: &Secret) -> io::Result<()> {
    let ours = random_bytes::<NONCE>()?;
    write_frame(&mut stream, &ours)?;
    let theirs = read_frame(&mut stream, NONCE)?;
    let proof = read_frame(&mut stream, NONCE)?;
    let signed = [b"guest".as_slice(), &ours, &theirs].concat();
    hmac::verify(&secret.key(), &signed, &proof).map_err(|_unspecified| refused())?;
    let proof = hmac::sign(&secret.key(), &[b"host".as_slice(), &theirs, &ours].concat());
    write_frame(&mut stream, proof.as_ref())
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other side does not know the secret")
}

fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_unspecified| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn prove(guest: Secret, host: Secret) -> (bool, bool) {
        let (here, there) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || accept(&there, &host).is_ok());
        let guest = connect(&here, &guest).is_ok();
        drop(here);
        (guest, thread.join().unwrap())
    }

    #[test]
    fn only_the_same_secret_is_accepted() {
        let secret = Secret::random().unwrap();
        assert_eq!(prove(secret.clone(), secret.clone()), (true, true));
        assert_eq!(prove(Secret::random().unwrap(), secret.clone()), (false, false));
        assert_eq!(prove(Secret::default(), secret.clone()), (false, false));
        assert_eq!(prove(Secret::default(), Secret::default()), (true, true));
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret));
        assert_eq!(Secret::from_hex("x1"), None);
        assert_eq!(Secret::from_hex("é1"), None);
    }
}
