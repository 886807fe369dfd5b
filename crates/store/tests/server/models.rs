//! Models that are run for clients on real sockets.

use crate::common::{TestServer, request};
use phalanx_store::core::ModelCall;
use phalanx_store::{ModelFailure, ModelRunner, ServerConfig};
use phalanx_types::Tensor;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Gives the inputs back when the test says so; fails when the test says that.
struct Slow(Mutex<Receiver<bool>>);

impl ModelRunner for Slow {
    fn run(&self, call: &ModelCall) -> Result<Vec<Tensor>, ModelFailure> {
        let works = self.0.lock().ok().and_then(|receiver| receiver.recv().ok()).unwrap_or(false);
        let outputs = call.inputs.iter().map(|input| Tensor::clone(input)).collect();
        if works { Ok(outputs) } else { Err(ModelFailure { reason: "bad weather".into() }) }
    }
}

fn server() -> (TestServer, Sender<bool>) {
    let (sender, receiver) = channel();
    let runner: Arc<dyn ModelRunner> = Arc::new(Slow(Mutex::new(receiver)));
    (TestServer::start(ServerConfig { runner: Some(runner), ..ServerConfig::default() }), sender)
}

const RUN: &[u8] = b"AI.MODELEXECUTE m INPUTS 1 in OUTPUTS 1 out\r\n";

#[test]
fn a_quick_model_is_answered_plainly() {
    let (server, done) = server();
    let mut client = server.connect();
    client.send(b"AI.MODELSTORE m ONNX CPU BLOB x\r\nAI.TENSORSET in INT8 2 BLOB ab\r\n");
    client.expect(b"+OK\r\n+OK\r\n");
    done.send(true).unwrap();
    client.send(&[RUN, b"AI.TENSORGET out BLOB\r\n"].concat());
    client.expect(b"+OK\r\n$2\r\nab\r\n");
    done.send(false).unwrap();
    client.send(RUN);
    client.expect(b"-ERR running the model failed: bad weather\r\n");
}

#[test]
fn a_slow_model_keeps_its_client_waiting_with_padding() {
    let (server, done) = server();
    let mut client = server.connect();
    client.send(b"AI.MODELSTORE m ONNX CPU BLOB x\r\nAI.TENSORSET in INT8 2 BLOB ab\r\n");
    client.expect(b"+OK\r\n+OK\r\n");
    for (works, reply) in [(true, "+OK\r\n"), (false, "-ERR running the model failed: bad weather\r\n")] {
        client.send(RUN);
        // Nothing but time makes this come; others are served meanwhile.
        client.expect(b"*2\r\n$36000\r\n   ");
        let mut other = server.connect();
        other.send(b"PING\r\n");
        other.expect(b"+PONG\r\n");
        done.send(works).unwrap();
        client.expect(&[" ".repeat(36_000 - 3).as_bytes(), b"\r\n", reply.as_bytes()].concat());
    }
    // A client that introduced itself gets a plain reply, however late.
    client.send(&request(&["CLIENT", "SETINFO", "LIB-NAME", "x"]));
    client.expect(b"+OK\r\n");
    client.send(RUN);
    let mut other = server.connect();
    // The other client's padding shows that the time has passed.
    other.send(RUN);
    other.expect(b"*2\r\n$36000\r\n ");
    done.send(true).unwrap();
    done.send(true).unwrap();
    client.expect(b"+OK\r\n");
}
