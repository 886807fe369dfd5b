//! Producers in processes of their own: this test binary, which is started again for each of them.

use phalanx_store_client::{ProducerOptions, Store, StoreOptions};
use phalanx_streams::{Retention, StreamSettings};
use phalanx_testkit::{Process, Sandbox};
use phalanx_types::{ByteSize, ProducerId, Tensor};
use std::process::Command;
use std::time::Duration;

/// Producers of a stream.
pub(super) const PRODUCERS: u32 = 2;
/// What a producer process is told: address, its number, and the rest of [`Produced`].
const TOLD: &str = "PHALANX_TEST_PRODUCER";

/// What each producer makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Produced {
    pub(super) uploads: u64,
    /// Samples of an upload.
    pub(super) rows: u64,
    /// Between two uploads.
    pub(super) pause: Duration,
    /// The stream frees what was used, and holds no more bytes than these.
    pub(super) budget: Option<u64>,
    /// Producers that the stream waits for.
    pub(super) expected: u32,
    /// Producers that are started.
    pub(super) producers: u32,
    /// A producer that says nothing for so long is lost.
    pub(super) silence: Duration,
}

impl Default for Produced {
    fn default() -> Self {
        Self {
            uploads: 10,
            rows: 25,
            pause: Duration::ZERO,
            budget: None,
            expected: PRODUCERS,
            producers: PRODUCERS,
            silence: Duration::from_secs(30),
        }
    }
}

/// Starts a store at a free port; gives its address.
pub(super) fn store(sandbox: &Sandbox, args: &[&str]) -> (Process, String) {
    store_at(sandbox, "127.0.0.1:0", args)
}

/// Starts a store at an address.
pub(super) fn store_at(sandbox: &Sandbox, bind: &str, args: &[&str]) -> (Process, String) {
    let all = [&["store", "serve", "--bind", bind, "--output", "quiet"], args].concat();
    let process = sandbox.start(&all);
    let address = process.line();
    (process, address)
}

/// Samples that have arrived in the stream, and bytes that it holds.
pub(super) fn info(at: &str) -> (u64, u64) {
    let store = Store::connect(at, StoreOptions::default()).unwrap();
    let info = store.stream_info("training_data").unwrap();
    (info.stream.samples, info.stream.stored.0)
}

/// Producers at work.
pub(super) struct Producing {
    pub(super) processes: Vec<Process>,
    samples: u64,
}

impl Producing {
    pub(super) fn start(at: &str, produced: Produced) -> Self {
        let Produced { uploads, rows, pause, budget, expected, producers, silence } = produced;
        let start = |number: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["streams::producers::producer_process", "--exact", "--ignored", "--nocapture"]);
            let told = format!(
                "{at} {number} {uploads} {rows} {} {} {expected} {}",
                pause.as_millis(),
                budget.unwrap_or(0),
                silence.as_millis()
            );
            command.env(TOLD, told);
            Process::start(command)
        };
        Self {
            processes: (0..producers).map(start).collect(),
            samples: uploads * rows * u64::from(producers),
        }
    }

    /// Waits until all have closed; gives how many samples there are.
    pub(super) fn finish(mut self) -> u64 {
        for process in &mut self.processes {
            let (status, _) = process.finish();
            assert!(status.success(), "{}", process.stderr());
        }
        self.samples
    }
}

/// Sample and target of a simple function.
fn sample(number: u64) -> ([f32; 8], f32) {
    let x = std::array::from_fn(|i| ((number * 31 + i as u64 * 17) % 101) as f32 / 50.0 - 1.0);
    (x, x.iter().enumerate().map(|(i, x)| x * (i as f32 - 3.0) * 0.2).sum::<f32>().tanh())
}

/// One producer: only the tests above start it.
#[test]
#[ignore = "the process of a producer, which tests start"]
fn producer_process() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let mut words = told.split(' ');
    let at = words.next().unwrap().to_owned();
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let [me, uploads, rows, pause, budget, expected, silence] = [(); 7].map(|()| number());
    let settings = StreamSettings {
        expected_producers: Some(u32::try_from(expected).unwrap()),
        retention: if budget > 0 { Retention::Free } else { Retention::Keep },
        budget: (budget > 0).then_some(ByteSize(budget)),
        producer_silence: Some(Duration::from_millis(silence)),
        ..StreamSettings::default()
    };
    let id = ProducerId::new(format!("sim-{me}")).unwrap();
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    let options = ProducerOptions { settings: Some(settings), ..ProducerOptions::new(id) };
    let mut producer = store.produce("training_data", options).unwrap();
    while producer.next() < uploads {
        let first = (me * uploads + producer.next()) * rows;
        let (x, y): (Vec<[f32; 8]>, Vec<f32>) = (first..first + rows).map(sample).unzip();
        let x = Tensor::from_f32(vec![rows, 8], x.as_flattened()).unwrap();
        let y = Tensor::from_f32(vec![rows, 1], &y).unwrap();
        producer.put(&[("samples", &x), ("targets", &y)]).unwrap();
        // A simulation takes its time.
        std::thread::sleep(Duration::from_millis(pause));
    }
    producer.close().unwrap();
}
