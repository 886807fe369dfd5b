//! Random claims, releases, waits and jobs against a plain model.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_account::Holder;
use phalanx_account::core::{Account, ClaimId};
use phalanx_types::{ByteSize, Needs, RunId};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

const NONE: Needs = Needs { cores: 0, memory: ByteSize(0) };

fn needs(cores: u32, memory: u64) -> Needs {
    Needs { cores, memory: ByteSize(memory) }
}

fn run(number: u64) -> Holder {
    Holder::Run { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn waiting(number: u64) -> Holder {
    Holder::WaitingRun { run: RunId(number), driver: "main-4f2a".parse().unwrap() }
}

fn claimed(model: &[(ClaimId, Needs)]) -> Needs {
    model.iter().fold(NONE, |sum, (_, part)| needs(sum.cores + part.cores, sum.memory.0 + part.memory.0))
}

/// Does something at random to an account, and to a plain list of what should be in it.
fn step(
    dice: &mut impl Rng,
    account: &mut Account,
    model: &mut Vec<(ClaimId, Needs)>,
    waits: &mut Vec<ClaimId>,
) {
    let ask = needs(dice.random_range(0..5), dice.random_range(0..9));
    let claimed = claimed(model);
    let used = needs(claimed.cores + account.jobs().cores, claimed.memory.0 + account.jobs().memory.0);
    let fits = |used: Needs| used.cores + ask.cores <= 4 && used.memory.0 + ask.memory.0 <= 20;
    match dice.random_range(0..5) {
        0 => {
            let claim = account.try_claim(run(dice.random()), ask);
            assert_eq!(claim.is_ok(), fits(used), "{ask:?} beside {used:?}");
            model.extend(claim.map(|id| (id, ask)));
        }
        1 if !model.is_empty() => {
            let (id, _) = model.swap_remove(dice.random_range(0..model.len()));
            account.release(id);
        }
        2 => waits.push(account.wait_for(waiting(dice.random()), ask)),
        3 if !waits.is_empty() => account.give_up(waits.swap_remove(dice.random_range(0..waits.len()))),
        _ => {
            let before = account.jobs();
            let set = account.set_jobs(ask.cores, ask);
            assert_eq!(set.is_ok(), fits(claimed), "{ask:?} of jobs beside {claimed:?}");
            assert_eq!(account.jobs(), if set.is_ok() { ask } else { before });
        }
    }
}

#[test]
fn whatever_is_claimed_and_released_the_node_is_never_oversubscribed() {
    for seed in 0..200 {
        let mut dice = Pcg64::seed_from_u64(seed);
        let mut account = Account::new(needs(4, 20));
        let (mut model, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let (version, taken) = (account.version(), account.taken());
            step(&mut dice, &mut account, &mut model, &mut waits);
            account.check_invariants();
            assert!(
                version != account.version() || taken == account.taken(),
                "a change that nobody hears of"
            );
            let share = account.jobs_share();
            let claims = claimed(&model);
            assert!(share.cores + claims.cores <= 4 && share.memory.0 + claims.memory.0 <= 20);
        }
        model.into_iter().for_each(|(id, _)| account.release(id));
        waits.into_iter().for_each(|id| account.give_up(id));
        account.set_jobs(0, NONE).unwrap();
        assert_eq!((account.free(), account.uses()), (needs(4, 20), Vec::new()));
    }
}
