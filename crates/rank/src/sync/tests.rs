//! Which strategy follows from what, and that members of a round need no links to each other.

use super::*;
use crate::control_lane::ControlLane;
use crate::error::RankError;
use crate::exchange::Exchange;
use crate::rings::{RingLane, Rings};
use phalanx_collective::{BucketLimits, Buckets, Compression, Group, GroupEnd, GroupOptions, PreparedGroup};
use phalanx_protocol::aggregate::weight;
use phalanx_protocol::progress::{Place, Plan};
use phalanx_protocol::{Every, Length, PassLengths, Passes};
use phalanx_records::ModelState;
use phalanx_train::config::RunFile;
use phalanx_train::round::{Delta, Named};
use phalanx_types::{Tensor, Time};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Samples of each member in a round.
const SAMPLES: [u64; 3] = [5, 1, 10];
const PARAMETERS: [(&str, usize); 2] = [("fc.weight", 7), ("fc.bias", 3)];
const STATISTICS: (&str, usize) = ("bn.running_mean", 2);
const ROUNDS: usize = 3;

fn config(rest: &str) -> RunConfig {
    let run =
        "[model]\nzoo = \"mlp\"\n[data]\ntrain = { file = \"none\" }\n[train]\nloss = \"mse\"\nepochs = 1\n";
    RunFile::parse(Path::new("run.toml"), &format!("{run}{rest}"), &[]).unwrap().config
}

/// Replicas without stages, of a model with batch norm.
const REPLICAS: GroupFacts =
    GroupFacts { has_rings: true, is_planned: false, has_driver: true, has_buffers: true };
const ALONE: GroupFacts = GroupFacts { has_rings: false, has_driver: false, ..REPLICAS };
const STAGES: GroupFacts = GroupFacts { has_rings: false, is_planned: true, ..REPLICAS };

fn round(local: LocalWork, most: u64, aggregate: Option<Aggregate>) -> SyncStrategy {
    let merge = aggregate.map(|aggregate| Merge { aggregate, optimizer: &[] });
    SyncStrategy::Rounds(Round { local, most, merge })
}

#[test]
fn a_strategy_follows_from_the_run_file_and_the_group() {
    let gradients = |statistics, verify| SyncStrategy::Gradients { statistics, verify };
    let of = |rest: &str, group| SyncStrategy::new(&config(rest), group);
    assert_eq!(of("", ALONE), gradients(Statistics::Own, 0));
    assert_eq!(of("[sync]\nverify = 7", REPLICAS), gradients(Statistics::Shared, 7));
    let local = "[sync]\nbatch_norm = \"local\"\nverify = 0";
    assert_eq!(of(local, REPLICAS), gradients(Statistics::Averaged, 0));
    assert_eq!(of(local, GroupFacts { has_buffers: false, ..REPLICAS }), gradients(Statistics::Own, 0));
    let stages = "[formation]\nstages = 2";
    assert_eq!(of(stages, STAGES), gradients(Statistics::Own, 0));
    assert_eq!(of(stages, GroupFacts { has_rings: true, ..STAGES }), gradients(Statistics::Averaged, 0));

    let mean = Some(Aggregate::Mean);
    let parameters = "[sync]\nexchange = \"parameters\"\nevery = 5";
    let rounds = round(LocalWork::InOrder, 5, mean);
    assert_eq!(of(parameters, REPLICAS), rounds);
    assert_eq!(of(parameters, GroupFacts { has_rings: false, ..REPLICAS }), rounds, "others may come");
    assert_eq!(of(parameters, ALONE), gradients(Statistics::Own, 0), "no others will come");
    let outer = "[sync]\nexchange = \"outer\"\nouter_lr = 0.5\nouter_momentum = 0.25";
    let aggregate = Aggregate::Outer { lr: 0.5, momentum: 0.25 };
    assert_eq!(of(outer, REPLICAS), round(LocalWork::InOrder, 20, Some(aggregate)));

    let overlapping = "[formation]\nstages = 2\nmode = \"asynchronous\"";
    let unit = config(overlapping).formation.unit();
    assert_eq!(of(overlapping, STAGES), round(LocalWork::Overlapping, unit, None));
    let replicated = of(overlapping, GroupFacts { has_rings: true, ..STAGES });
    assert_eq!(replicated, round(LocalWork::Overlapping, 20, mean));
}

#[test]
fn a_round_ends_where_the_model_is_looked_at_and_steps_are_verified_now_and_then() {
    let plan = Plan {
        passes: PassLengths::Fixed(100),
        length: Length::Passes(1),
        validate: Every::Steps(8),
        checkpoint: Every::Steps(3),
        until: None,
    };
    let passes = Passes::new(plan, Place::default());
    let at = |step: u64| passes.progress(step, Time::ZERO).unwrap();
    let looked_at = round(LocalWork::InOrder, 5, Some(Aggregate::Mean));
    assert_eq!([0, 5, 8, 97].map(|step| looked_at.steps(at(step))), [5, 3, 5, 3]);
    let saved = round(LocalWork::Overlapping, 5, None);
    assert_eq!([0, 3, 6].map(|step| saved.steps(at(step))), [3, 3, 2]);
    let gradients = SyncStrategy::Gradients { statistics: Statistics::Own, verify: 4 };
    assert_eq!(gradients.steps(at(0)), 1);
    assert_eq!((0..9).filter(|step| gradients.verifies(*step)).collect::<Vec<_>>(), [0, 4, 8]);
    assert!((0..9).all(|step| !looked_at.verifies(step)));
}

/// Numbers that are no sums of a few powers of two, so that sums of them are rounded.
fn number(salt: usize) -> f32 {
    (phalanx_protocol::mark(salt as u64) >> 40) as f32 / (1u64 << 24) as f32 - 0.5
}

fn tensor(len: usize, value: impl Fn(usize) -> f32) -> Tensor {
    Tensor::from_f32(vec![len as u64], &(0..len).map(value).collect::<Vec<_>>()).unwrap()
}

fn start() -> ModelState {
    let weights = PARAMETERS.iter().chain([&STATISTICS]);
    let weights = weights.map(|(name, len)| ((*name).to_owned(), tensor(*len, number))).collect();
    let kept = PARAMETERS.iter().map(|(name, len)| (format!("{name}.m"), tensor(*len, |_| 0.0))).collect();
    ModelState { optimizer_steps: 0, weights, optimizer: kept }
}

/// The local work of a member: four steps that move everything a little.
fn learn(anchor: &ModelState, member: usize, round: usize) -> ModelState {
    let mut now = anchor.clone();
    now.optimizer_steps += 4;
    let all = now.weights.values_mut().chain(now.optimizer.values_mut());
    for (index, place) in all.enumerate() {
        let values = place.to_f32().unwrap();
        let salt = 1000 * (1 + member) + 100 * round + 10 * index;
        *place = tensor(values.len(), |i| values[i] + 0.1 * number(salt + i));
    }
    now
}

fn names() -> BTreeSet<&'static str> {
    PARAMETERS.iter().map(|(name, _)| *name).collect()
}

/// The state without what each member keeps for itself.
fn shared(merge: Merge, mut state: ModelState) -> ModelState {
    state.optimizer.retain(|name, _| !merge.optimizer.is_empty() || name.ends_with(".outer_velocity"));
    state
}

/// Holds what members gave. Members reach nothing else, and none reaches another.
#[derive(Debug, Default)]
struct Coordinator {
    given: RefCell<Vec<(Delta, u64)>>,
}

impl Combine for &Coordinator {
    fn give(&mut self, own: Delta, samples: u64) -> Result<(), RankError> {
        self.given.borrow_mut().push((own, samples));
        Ok(())
    }

    fn take(&mut self) -> Result<Delta, RankError> {
        let given = self.given.borrow();
        let of_all = given.iter().map(|(_, samples)| samples).sum();
        let average = |of: &dyn Fn(&Delta) -> &Named| -> Named {
            let mut sums = Named::new();
            for (delta, samples) in given.iter() {
                for (name, values) in of(delta) {
                    let sum = sums.entry(name.clone()).or_insert_with(|| vec![0.0; values.len()]);
                    let weight = weight(*samples, of_all);
                    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
                }
            }
            sums
        };
        let kinds = given.iter().flat_map(|(delta, _)| delta.optimizer.keys().copied());
        let optimizer: BTreeMap<_, _> =
            kinds.map(|kind| (kind, average(&|of| &of.optimizer[kind]))).collect();
        let [parameters, statistics] = [average(&|of| &of.parameters), average(&|of| &of.statistics)];
        Ok(Delta { parameters, optimizer, statistics })
    }
}

/// Rounds of members that know only a coordinator; the state after the last.
fn at_coordinator(merge: Merge) -> ModelState {
    let mut anchor = start();
    for round in 0..ROUNDS {
        let coordinator = Coordinator::default();
        let members: Vec<ModelState> = (0..SAMPLES.len()).map(|rank| learn(&anchor, rank, round)).collect();
        for (now, samples) in members.iter().zip(SAMPLES) {
            (&mut &coordinator).give(merge.delta(&anchor, now, &names()), samples).unwrap();
        }
        let next = |now| merge.next(&anchor, now, &(&mut &coordinator).take().unwrap()).unwrap();
        let take = |now| shared(merge, next(now));
        let mut next: Vec<ModelState> = members.into_iter().map(take).collect();
        assert!(next.windows(2).all(|pair| pair[0] == pair[1]), "all members take the same");
        anchor = next.remove(0);
    }
    anchor
}

fn prepare(rank: usize, room: usize) -> (PreparedGroup, GroupEnd) {
    let ranks = SAMPLES.len();
    let options = GroupOptions { rank, ranks, epoch: 1, room, share: true, cores: None, host: None };
    Group::prepare(options).unwrap()
}

/// The same rounds of members that are linked, each on a thread of its own.
fn over_links(merge: Merge) -> ModelState {
    let (names_in_order, sizes): (Vec<String>, Vec<usize>) =
        PARAMETERS.iter().map(|(name, len)| ((*name).to_owned(), *len)).unzip();
    let buckets = Buckets::plan(&sizes, BucketLimits::default());
    let room = Exchange::room(&buckets);
    let ends = |room| (0..SAMPLES.len()).map(|rank| prepare(rank, room)).unzip();
    let (rings, ring_ends): (Vec<PreparedGroup>, Vec<GroupEnd>) = ends(room);
    let (lanes, lane_ends): (Vec<PreparedGroup>, Vec<GroupEnd>) = ends(64 << 10);
    let buffers = [(STATISTICS.0.to_owned(), STATISTICS.1)];
    let run = |rank: usize, ring: PreparedGroup, lane: PreparedGroup| {
        let group = ring.connect(&ring_ends, Vec::new()).unwrap();
        let exchange = Exchange::new(group, buckets.clone(), Compression::None).unwrap();
        let mut rings = Rings::new(vec![RingLane { exchange, names: names_in_order.clone() }]);
        let lane = ControlLane::new(lane.connect(&lane_ends, Vec::new()).unwrap());
        let mut anchor = start();
        for round in 0..ROUNDS {
            let now = learn(&anchor, rank, round);
            let (lane, samples, given) = (&lane, SAMPLES.iter().sum(), Delta::default());
            let mut members = Linked { rings: &mut rings, lane, buffers: &buffers, samples, given };
            members.give(merge.delta(&anchor, &now, &names()), SAMPLES[rank]).unwrap();
            anchor = shared(merge, merge.next(&anchor, now, &members.take().unwrap()).unwrap());
        }
        anchor
    };
    let mut states: Vec<ModelState> = std::thread::scope(|scope| {
        let run = &run;
        let ends = rings.into_iter().zip(lanes).enumerate();
        let threads: Vec<_> =
            ends.map(|(rank, (ring, lane))| scope.spawn(move || run(rank, ring, lane))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "all ranks take the same");
    states.remove(0)
}

/// The parameters of members on average, weighted by samples, in numbers that are hardly rounded.
fn mean_of_members(of: impl Fn(&ModelState) -> Vec<f32>) -> Vec<f64> {
    let mut anchor = start();
    let merge = Merge { aggregate: Aggregate::Mean, optimizer: &["m"] };
    let mut mean = Vec::new();
    for round in 0..ROUNDS {
        let members: Vec<ModelState> = (0..SAMPLES.len()).map(|rank| learn(&anchor, rank, round)).collect();
        mean = vec![0.0; of(&anchor).len()];
        for (now, samples) in members.iter().zip(SAMPLES) {
            let share = samples as f64 / SAMPLES.iter().sum::<u64>() as f64;
            mean.iter_mut().zip(of(now)).for_each(|(mean, value)| *mean += share * f64::from(value));
        }
        let coordinator = Coordinator::default();
        for (now, samples) in members.iter().zip(SAMPLES) {
            (&mut &coordinator).give(merge.delta(&anchor, now, &names()), samples).unwrap();
        }
        anchor = merge.next(&anchor, members[0].clone(), &(&mut &coordinator).take().unwrap()).unwrap();
    }
    mean
}

fn assert_close(one: &ModelState, other: &ModelState) {
    assert_eq!(one.optimizer_steps, other.optimizer_steps);
    for (one, other) in [(&one.weights, &other.weights), (&one.optimizer, &other.optimizer)] {
        assert!(one.keys().eq(other.keys()));
        for (name, tensor) in one {
            let (one, other) = (tensor.to_f32().unwrap(), other[name].to_f32().unwrap());
            // Sums of three values below 1, in another order, once a round: half a unit in the last place for each.
            let most = ROUNDS as f32 * 3.0 * f32::EPSILON;
            assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() <= most), "{name}: {one:?} {other:?}");
        }
    }
}

#[test]
fn members_that_know_only_a_coordinator_come_to_the_state_of_linked_members() {
    let outer = Aggregate::Outer { lr: 0.7, momentum: 0.9 };
    for aggregate in [Aggregate::Mean, outer] {
        for optimizer in [&[][..], &["m"]] {
            let merge = Merge { aggregate, optimizer };
            let (linked, coordinated) = (over_links(merge), at_coordinator(merge));
            assert_close(&linked, &coordinated);
            assert_eq!(linked.optimizer.contains_key("fc.bias.outer_velocity"), aggregate == outer);
        }
    }
}

#[test]
fn the_state_after_a_round_is_the_average_by_samples() {
    let state = over_links(Merge { aggregate: Aggregate::Mean, optimizer: &["m"] });
    let looks: [fn(&ModelState) -> Vec<f32>; 3] = [
        |state| state.weights["fc.weight"].to_f32().unwrap(),
        |state| state.weights["bn.running_mean"].to_f32().unwrap(),
        |state| state.optimizer["fc.bias.m"].to_f32().unwrap(),
    ];
    for look in looks {
        for (value, mean) in look(&state).into_iter().zip(mean_of_members(look)) {
            assert!((f64::from(value) - mean).abs() < 2e-6, "{value} {mean}");
        }
    }
}

#[test]
fn a_delta_of_another_model_is_an_error() {
    let merge = Merge { aggregate: Aggregate::Mean, optimizer: &[] };
    let anchor = start();
    for (name, len) in [("fc.other", 3), ("fc.bias", 4)] {
        let parameters = Named::from_iter([(name.to_owned(), vec![0.0; len])]);
        let wrong = Delta { parameters, ..Delta::default() };
        assert!(merge.next(&anchor, anchor.clone(), &wrong).is_err(), "{name} of {len} values");
    }
}
