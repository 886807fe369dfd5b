use super::{counts, sandbox, submit};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

const BLOCK: usize = 1 << 20;

/// Writes a file of this many blocks, no two alike.
fn write_blocks(path: &Path, blocks: u64) {
    let mut file = File::create(path).unwrap();
    let mut block: Vec<u8> = (0..BLOCK).map(|i| (i * i / 251) as u8).collect();
    for i in 0..blocks {
        block[..8].copy_from_slice(&i.to_le_bytes());
        file.write_all(&block).unwrap();
    }
}

fn assert_same(a: &Path, b: &Path) {
    assert_eq!(a.metadata().unwrap().len(), b.metadata().unwrap().len());
    let (mut a, mut b) = (BufReader::new(File::open(a).unwrap()), BufReader::new(File::open(b).unwrap()));
    let (mut left, mut right) = (vec![0; BLOCK], vec![0; BLOCK]);
    for block in 0_u64.. {
        let n = a.read(&mut left).unwrap();
        if n == 0 {
            break;
        }
        b.read_exact(&mut right[..n]).unwrap();
        assert!(left[..n] == right[..n], "block {block} differs");
    }
}

#[test]
fn a_payload_of_600_mib_comes_back_as_it_went() {
    let sandbox = sandbox();
    let _node = sandbox.node(&[]);
    let payload = sandbox.path().join("payload");
    write_blocks(&payload, 600);
    let args = ["--kind", "echo", "--payload", "payload", "--solutions", "out"];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, counts(&summary)), (Some(0), [1, 1, 0, 0, 0]), "{summary}");
    assert_eq!(summary["reruns"], 0, "{summary}");
    assert_same(&payload, &sandbox.path().join("out/1.out"));
}

#[test]
fn a_thousand_payloads_of_100_kib_come_back_as_they_went() {
    let sandbox = sandbox();
    let _nodes = [sandbox.node(&["--cores", "2"]), sandbox.node(&["--cores", "2"])];
    let payload: Vec<u8> = (0..100 << 10).map(|i: u64| (i * i / 251) as u8).collect();
    std::fs::write(sandbox.path().join("payload"), &payload).unwrap();
    let args = ["--kind", "echo", "--payload", "payload", "--count", "1000", "--solutions", "out"];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, counts(&summary)), (Some(0), [1000, 1000, 0, 0, 0]), "{summary}");
    for job in 1..=1000 {
        let solution = std::fs::read(sandbox.path().join(format!("out/{job}.out"))).unwrap();
        assert!(solution == payload, "solution {job} differs");
    }
}

#[test]
fn a_command_reads_its_payload_and_prints_the_solution() {
    let sandbox = sandbox();
    let _node = sandbox.node(&["--allow-exec"]);
    write_blocks(&sandbox.path().join("payload"), 3);
    let args = ["--kind", "exec", "--payload", "payload", "--", "wc", "-c"];
    let (code, summary) = submit(&sandbox, &args).summary();
    assert_eq!((code, summary["solution"].as_str()), (Some(0), Some("3145728\n")), "{summary}");
}
