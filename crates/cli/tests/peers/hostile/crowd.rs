//! Many connections at once: some send garbage, some nothing at all.

use phalanx_testkit::{Process, Raw, Sandbox};
use phalanx_wire::handshake::{Purpose, preface};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::net::SocketAddr;

const THREADS: usize = 4;
/// The message for a connection that is dropped for its silence.
pub(crate) const TOO_LONG: &str = "the handshake took too long";

/// Opens this many connections that send random bytes, half of them after a valid preface.
pub(crate) fn babbling(address: SocketAddr, connections: usize) {
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || {
                let mut dice = Pcg32::seed_from_u64(seed as u64);
                for i in 0..connections / THREADS {
                    let mut bytes = vec![0; dice.random_range(0..2_000)];
                    dice.fill_bytes(&mut bytes);
                    if i % 2 == 0 {
                        bytes.splice(..0, preface(Purpose::Node));
                    }
                    Raw::connect(address).say_last(&bytes);
                }
            });
        }
    });
}

/// Hundreds of connections that send nothing, or only hello; members are served all the same.
pub(crate) fn silent(sandbox: &Sandbox, process: &Process, address: SocketAddr) {
    let crowd: Vec<_> = (0..600)
        .map(|i| {
            let mut raw = Raw::connect(address);
            if i % 2 == 0 {
                raw.write(&preface(Purpose::Node));
            }
            raw
        })
        .collect();
    let newcomer = ["job", "submit", "--wait", "--output", "json", "--kind", "upper", "--arg", "me"];
    assert_eq!(sandbox.json(&newcomer)["solution"], "ME");
    assert!(!process.stderr().contains(TOO_LONG), "the newcomer had to wait for the silent");
    process.says("too many connections");
    process.says(TOO_LONG);
    for mut raw in crowd {
        raw.closed();
    }
}
