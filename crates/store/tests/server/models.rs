//! Models that are run for clients on real sockets.

use crate::common::{TestServer, request};
use phalanx_store::core::ModelCall;
use phalanx_store::{ModelDone, ModelFailure, ModelRunner, ServerConfig};
use phalanx_types::Tensor;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// What the test has the runner do with the oldest request.
enum Act {
    /// Give the inputs back.
    Work,
    Fail,
    /// Forget the request, as a thread that panics does.
    Forget,
}

/// Does with each request what the test says, when it says so.
struct Slow(Arc<Mutex<Receiver<Act>>>);

impl ModelRunner for Slow {
    fn start(&self, call: Arc<ModelCall>, done: ModelDone) {
        let acts = self.0.clone();
        std::thread::spawn(move || {
            let act = acts.lock().ok().and_then(|receiver| receiver.recv().ok()).unwrap_or(Act::Forget);
            let outputs = call.inputs.iter().map(|input| Tensor::clone(input)).collect();
            match act {
                Act::Work => done.tell(Ok(outputs)),
                Act::Fail => done.tell(Err(ModelFailure { reason: "bad weather".into() })),
                Act::Forget => drop(done),
            }
        });
    }
}

fn server() -> (TestServer, Sender<Act>) {
    let (sender, receiver) = channel();
    let runner: Arc<dyn ModelRunner> = Arc::new(Slow(Arc::new(Mutex::new(receiver))));
    (TestServer::start(ServerConfig { runner: Some(runner), ..ServerConfig::default() }), sender)
}

const RUN: &[u8] = b"AI.MODELEXECUTE m INPUTS 1 in OUTPUTS 1 out\r\n";

#[test]
fn a_quick_model_is_answered_plainly() {
    let (server, done) = server();
    let mut client = server.connect();
    client.send(b"AI.MODELSTORE m ONNX CPU BLOB x\r\nAI.TENSORSET in INT8 2 BLOB ab\r\n");
    client.expect(b"+OK\r\n+OK\r\n");
    done.send(Act::Work).unwrap();
    client.send(&[RUN, b"AI.TENSORGET out BLOB\r\n"].concat());
    client.expect(b"+OK\r\n$2\r\nab\r\n");
    done.send(Act::Fail).unwrap();
    client.send(RUN);
    client.expect(b"-ERR running the model failed: bad weather\r\n");
    done.send(Act::Forget).unwrap();
    client.send(RUN);
    client.expect(b"-ERR running the model failed: the model runner failed\r\n");
}

#[test]
fn a_client_waits_no_longer_than_it_said() {
    let (server, done) = server();
    let mut client = server.connect();
    client.send(b"AI.MODELSTORE m ONNX CPU BLOB x\r\nAI.TENSORSET in INT8 2 BLOB ab\r\n");
    client.expect(b"+OK\r\n+OK\r\n");
    client.send(b"AI.MODELEXECUTE m INPUTS 1 in OUTPUTS 1 out TIMEOUT 30\r\n");
    client.expect(b"-ERR running the model failed: it took longer than its TIMEOUT\r\n");
    // The one that comes late is not stored; the next one is.
    done.send(Act::Work).unwrap();
    client.send(b"AI.MODELEXECUTE m INPUTS 1 in OUTPUTS 1 second TIMEOUT 50000\r\n");
    done.send(Act::Work).unwrap();
    client.expect(b"+OK\r\n");
    client.send(b"EXISTS out second\r\n");
    client.expect(b":1\r\n");
}

#[test]
fn a_slow_model_keeps_its_client_waiting_with_padding() {
    let (server, done) = server();
    let mut client = server.connect();
    client.send(b"AI.MODELSTORE m ONNX CPU BLOB x\r\nAI.TENSORSET in INT8 2 BLOB ab\r\n");
    client.expect(b"+OK\r\n+OK\r\n");
    for (act, reply) in
        [(Act::Work, "+OK\r\n"), (Act::Fail, "-ERR running the model failed: bad weather\r\n")]
    {
        client.send(RUN);
        // Nothing but time makes this come; others are served meanwhile.
        client.expect(b"*2\r\n$36000\r\n   ");
        let mut other = server.connect();
        other.send(b"PING\r\n");
        other.expect(b"+PONG\r\n");
        done.send(act).unwrap();
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
    done.send(Act::Work).unwrap();
    done.send(Act::Work).unwrap();
    client.expect(b"+OK\r\n");
}
