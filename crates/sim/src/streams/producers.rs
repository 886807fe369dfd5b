//! The processes of producers.

use super::world::{Client, Event, Lane, World};
use phalanx_streams::{ProducerLife, StreamEvent, StreamRefusal, ToProducer};
use phalanx_types::{ByteSize, Incarnation, ProducerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// One life of a producer.
#[derive(Debug)]
pub(super) struct Producer {
    pub(super) producer: usize,
    pub(super) life: ProducerLife,
    pub(super) phase: Phase,
    /// Where it begins if it does not ask the store.
    own_start: Option<u64>,
    next: u64,
    /// Uploads on their way, by number.
    flights: BTreeMap<u64, Flight>,
    computing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Opening,
    Running,
    Closing,
    Closed,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    Asked,
    Waiting,
    Sending,
}

pub(super) fn producer_id(index: usize) -> ProducerId {
    ProducerId::new(format!("sim-{index}")).expect("a name")
}

impl World {
    /// Starts a new life of a producer, beginning at its own checkpoint if it has one.
    pub(super) fn start_producer(&mut self, producer: usize, checkpoint: u64) {
        let lives = self.producers.iter().filter(|process| process.producer == producer).count() as u64;
        let own_start = self.dice.faults.chance(1, 2).then(|| self.dice.faults.number(0..checkpoint + 1));
        let life = ProducerLife { id: producer_id(producer), incarnation: Incarnation(lives + 1) };
        self.producers.push(Producer {
            producer,
            life,
            phase: Phase::Opening,
            own_start,
            next: 0,
            flights: BTreeMap::new(),
            computing: false,
        });
        let process = self.producers.len() - 1;
        self.producer_timer(process);
    }

    /// Sends again what was not answered, and comes back later.
    pub(super) fn producer_timer(&mut self, process: usize) {
        let Producer { life, phase, flights, producer, .. } = &self.producers[process];
        let plan = &self.plan.producers[*producer];
        let producer = life.clone();
        let mut requests = Vec::new();
        match phase {
            Phase::Opening => requests.push(StreamEvent::ProducerOpened { producer }),
            Phase::Running => {
                requests.push(StreamEvent::ProducerHeard { producer: producer.clone() });
                for (number, flight) in flights {
                    let (samples, bytes) = plan.uploads[*number as usize];
                    let (producer, number, bytes) = (producer.clone(), *number, ByteSize(bytes));
                    // On a reliable network a client that was told to wait is woken.
                    if *flight != Flight::Waiting || self.plan.loss > 0 {
                        requests.push(StreamEvent::UploadBegun { producer, number, samples, bytes });
                    }
                }
            }
            Phase::Closing => {
                let uploads = plan.uploads.len() as u64;
                requests.push(StreamEvent::ProducerClosed { producer, uploads });
            }
            Phase::Closed | Phase::Dead => return,
        }
        for request in requests {
            self.request(Client::Producer(process), request);
        }
        let delay = self.dice.paces.millis(300..600);
        self.after(delay, Event::ProducerTimer { process });
    }

    pub(super) fn answer_producer(&mut self, life: &ProducerLife, message: ToProducer) {
        if let Some(process) = self.producers.iter().position(|process| process.life == *life) {
            self.send(Lane::FromStore(Client::Producer(process)), Event::ProducerAnswer { process, message });
        }
    }

    pub(super) fn producer_told(&mut self, process: usize, message: ToProducer) {
        let total = self.plan.producers[self.producers[process].producer].uploads.len() as u64;
        let state = &mut self.producers[process];
        if matches!(state.phase, Phase::Dead | Phase::Closed) {
            return;
        }
        match message {
            ToProducer::Opened { closed: true, .. } | ToProducer::Closed => state.phase = Phase::Closed,
            ToProducer::Opened { next, closed: false } => {
                if state.phase == Phase::Opening {
                    state.phase = Phase::Running;
                    state.flights.clear();
                    // A new life may begin at a checkpoint of its own and repeat what has arrived.
                    state.next = state.own_start.take().unwrap_or(next).min(total);
                }
            }
            ToProducer::Admitted { number } => {
                if let Some(flight) = state.flights.get_mut(&number) {
                    *flight = Flight::Sending;
                    self.send(Lane::ToStore(Client::Producer(process)), Event::Bytes { process, number });
                }
            }
            ToProducer::Wait { number, reason } => {
                self.counts.waits += 1;
                assert!(reason.to_string().starts_with("waiting: "), "{reason}");
                if let Some(flight) = state.flights.get_mut(&number)
                    && *flight == Flight::Asked
                {
                    *flight = Flight::Waiting;
                }
            }
            ToProducer::Acknowledged { number } => {
                let id = state.life.id.clone();
                state.flights.remove(&number);
                self.audit.acknowledged(id, number);
            }
            ToProducer::Refused(refusal) => self.producer_refused(process, &refusal),
        }
        self.pump(process);
    }

    fn producer_refused(&mut self, process: usize, refusal: &StreamRefusal) {
        let state = &mut self.producers[process];
        match refusal {
            StreamRefusal::Fenced { .. } => {
                self.counts.fenced += 1;
                state.phase = Phase::Dead;
            }
            StreamRefusal::NotOpen { .. } => state.phase = Phase::Opening,
            // The timer begins it again.
            StreamRefusal::NotBegun { .. } => {}
            StreamRefusal::Ended { .. } | StreamRefusal::ProducerClosed { .. } => state.phase = Phase::Closed,
            StreamRefusal::Incomplete { missing, .. } => {
                state.phase = Phase::Running;
                state.next = state.next.min(*missing);
            }
            refusal => self.violate(format!("a producer is refused: {refusal}")),
        }
    }

    /// Computes the next upload, or closes.
    fn pump(&mut self, process: usize) {
        let state = &mut self.producers[process];
        let plan = &self.plan.producers[state.producer];
        if state.phase != Phase::Running || state.computing {
            return;
        }
        if state.next < plan.uploads.len() as u64 {
            if state.flights.len() < plan.window {
                state.computing = true;
                let delay = self.dice.paces.micros(plan.pace / 2..plan.pace + 1);
                self.after(delay, Event::Produced { process });
            }
        } else if state.flights.is_empty() {
            state.phase = Phase::Closing;
            let (producer, uploads) = (state.life.clone(), plan.uploads.len() as u64);
            self.request(Client::Producer(process), StreamEvent::ProducerClosed { producer, uploads });
        }
    }

    pub(super) fn produced(&mut self, process: usize) {
        let state = &mut self.producers[process];
        state.computing = false;
        if state.phase == Phase::Running
            && let Some((samples, bytes)) =
                self.plan.producers[state.producer].uploads.get(state.next as usize)
        {
            let (producer, number) = (state.life.clone(), state.next);
            state.flights.insert(number, Flight::Asked);
            state.next += 1;
            let (samples, bytes) = (*samples, ByteSize(*bytes));
            self.request(
                Client::Producer(process),
                StreamEvent::UploadBegun { producer, number, samples, bytes },
            );
        }
        self.pump(process);
    }

    /// Kills a process; the store learns of it when it notices the broken connection, or by its silence.
    pub(super) fn kill_producer(&mut self, process: usize, noticed: bool) {
        self.producers[process].phase = Phase::Dead;
        let producer = self.producers[process].life.clone();
        if noticed || self.plan.settings.producer_silence.is_none() {
            self.after(Duration::from_millis(2), Event::Request(StreamEvent::ProducerLost { producer }));
        }
    }

    /// The process learns that its connection is gone, and opens the stream again.
    pub(super) fn reconnect_producer(&mut self, process: usize) {
        let state = &mut self.producers[process];
        if matches!(state.phase, Phase::Running | Phase::Closing) {
            state.phase = Phase::Opening;
        }
        if state.phase == Phase::Opening {
            let producer = state.life.clone();
            self.request(Client::Producer(process), StreamEvent::ProducerOpened { producer });
        }
    }
}
