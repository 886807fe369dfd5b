//! Random claims, releases, waits and jobs against a plain model.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_account::Holder;
use phalanx_account::core::{Account, ClaimId};
use phalanx_types::{ByteSize, Needs, RunId};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

const NONE: Needs = needs(0, 0);
const CAPACITY: Needs = needs(4, 20);

const fn needs(cores: u32, memory: u64) -> Needs {
    Needs { cores, memory: ByteSize(memory) }
}

fn run(number: u64) -> Holder {
    Holder::Run { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn waiting(number: u64) -> Holder {
    Holder::WaitingRun { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn add(a: Needs, b: Needs) -> Needs {
    needs(a.cores + b.cores, a.memory.0 + b.memory.0)
}

fn total(parts: &[(ClaimId, Needs)]) -> Needs {
    parts.iter().fold(NONE, |sum, (_, part)| add(sum, *part))
}

/// Whether a claim takes nothing that is not left. A claim that needs no memory fits where there is none.
fn fits(ask: Needs, used: Needs) -> bool {
    let memory = CAPACITY.memory.0.saturating_sub(used.memory.0);
    ask.fit(CAPACITY.cores.saturating_sub(used.cores), ByteSize(memory))
}

/// What should be in an account; waits in order of arrival.
#[derive(Default)]
struct Model {
    claims: Vec<(ClaimId, Needs)>,
    waits: Vec<(ClaimId, Needs)>,
}

impl Model {
    /// Does something at random to the account and to the model.
    fn step(&mut self, dice: &mut impl Rng, account: &mut Account) {
        let ask = needs(dice.random_range(0..5), dice.random_range(0..9));
        let claimed = total(&self.claims);
        match dice.random_range(0..6) {
            0 => {
                let claim = account.try_claim(run(dice.random()), ask);
                self.on_tried(dice, account.jobs(), self.waits.len(), ask, claim.ok());
            }
            1 if !self.waits.is_empty() => {
                let turn = dice.random_range(0..self.waits.len());
                let ((id, ask), jobs) = (self.waits[turn], account.jobs());
                let claim = account.claim_in_turn(id, run(dice.random()), ask).ok();
                self.on_tried(dice, jobs, turn, ask, claim);
                if claim.is_some() {
                    self.waits.remove(turn);
                }
            }
            2 if !self.claims.is_empty() => {
                let (id, _) = self.claims.swap_remove(dice.random_range(0..self.claims.len()));
                account.release(id);
            }
            3 => self.waits.push((account.wait_for(waiting(dice.random()), ask), ask)),
            4 if !self.waits.is_empty() => {
                let (id, _) = self.waits.remove(dice.random_range(0..self.waits.len()));
                assert!(account.give_up(id));
            }
            _ => {
                let before = account.jobs();
                let set = account.set_jobs(ask.cores, ask);
                assert_eq!(set.is_ok(), fits(ask, claimed), "{ask:?} of jobs beside {claimed:?}");
                assert_eq!(account.jobs(), if set.is_ok() { ask } else { before });
            }
        }
    }

    /// A claim was tried behind the first `turn` waits.
    fn on_tried(
        &mut self,
        dice: &mut impl Rng,
        jobs: Needs,
        turn: usize,
        ask: Needs,
        claim: Option<ClaimId>,
    ) {
        let used = add(total(&self.claims), jobs);
        let earlier = &self.waits[..turn];
        assert_eq!(claim.is_some(), fits(ask, add(used, total(earlier))), "{ask:?}, {used:?}, {earlier:?}");
        let Some(claim) = claim else { return };
        // Whichever claims end first: earlier waits are served as soon as they would have been without this claim.
        for _ in 0..4 {
            let still_used: Vec<_> = self.claims.iter().copied().filter(|_| dice.random()).collect();
            for next in 1..=turn {
                let served = add(total(&still_used), total(&earlier[..next]));
                assert!(!fits(served, NONE) || fits(add(served, ask), NONE), "{ask:?} delays {earlier:?}");
            }
        }
        self.claims.push((claim, ask));
    }
}

#[test]
fn whatever_is_claimed_and_released_the_node_is_never_oversubscribed() {
    for seed in 0..200 {
        let mut dice = Pcg64::seed_from_u64(seed);
        let mut account = Account::new(CAPACITY);
        let mut model = Model::default();
        for _ in 0..200 {
            let (version, taken) = (account.version(), account.taken());
            model.step(&mut dice, &mut account);
            account.check_invariants();
            assert!(
                version != account.version() || taken == account.taken(),
                "a change that nobody hears of"
            );
            assert!(fits(add(account.jobs_share(), total(&model.claims)), NONE));
        }
        model.claims.into_iter().for_each(|(id, _)| account.release(id));
        model.waits.into_iter().for_each(|(id, _)| assert!(account.give_up(id)));
        account.set_jobs(0, NONE).unwrap();
        assert_eq!((account.free(), account.uses()), (CAPACITY, Vec::new()));
    }
}

/// Small claims wait all the time, so that the node is never idle by itself. A claim on the whole node is served as soon
/// as the claims that came before it have ended.
#[test]
fn small_claims_do_not_overtake_a_large_one_for_ever() {
    const LARGE_AT: u64 = 20;
    for seed in 0..200 {
        let mut dice = Pcg64::seed_from_u64(seed);
        let mut account = Account::new(CAPACITY);
        // Claims with their ends; waits in order of arrival, with what they need and how long they will last.
        let mut claims: Vec<(u64, ClaimId)> = Vec::new();
        let mut waits: Vec<(ClaimId, Needs, u64)> = Vec::new();
        let mut large = None;
        for now in 0.. {
            assert!(
                large.is_none_or(|(_, latest)| now <= latest),
                "seed {seed}: the large claim still waits"
            );
            claims.extract_if(.., |(end, _)| *end <= now).for_each(|(_, claim)| account.release(claim));
            waits.retain(|(id, ask, lasts)| match account.claim_in_turn(*id, run(now), *ask) {
                Ok(claim) => {
                    claims.push((now + lasts, claim));
                    false
                }
                Err(_) => true,
            });
            if large.is_some_and(|(id, _)| waits.iter().all(|(wait, ..)| *wait != id)) {
                break;
            }
            while waits.len() < 3 {
                let (ask, lasts) = (needs(dice.random_range(1..3), 1), dice.random_range(1..9));
                match account.try_claim(run(now), ask) {
                    Ok(claim) => claims.push((now + lasts, claim)),
                    Err(_) => waits.push((account.wait_for(waiting(now), ask), ask, lasts)),
                }
            }
            if now == LARGE_AT {
                let earlier = waits.iter().map(|(.., lasts)| lasts);
                let latest = claims.iter().map(|(end, _)| *end).max().unwrap_or(now) + earlier.sum::<u64>();
                let id = account.wait_for(waiting(now), CAPACITY);
                waits.push((id, CAPACITY, 1));
                large = Some((id, latest));
            }
        }
    }
}
