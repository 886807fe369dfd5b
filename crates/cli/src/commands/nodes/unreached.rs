//! Why a command has found no other node although it knew where to look.

use crate::args::DomainArgs;
use crate::failure::Failure;
use anyhow::anyhow;
use phalanx_fabric::{Fabric, Unreached};

/// Fails when no other node is there, and one that was asked refused, or an address that was given does not answer.
pub(super) fn check(fabric: &Fabric, domain: &DomainArgs) -> Result<(), Failure> {
    let others = fabric.nodes();
    if others.iter().any(|node| node.id != *fabric.id() && node.state.is_live()) {
        return Ok(());
    }
    let relays = domain.relay.iter().map(|relay| format!("relay {relay}"));
    let named: Vec<String> = domain.connect.iter().cloned().chain(relays).collect();
    let failed = fabric.unreached();
    let told = reasons(&named, &failed);
    if told.is_empty() {
        return Ok(());
    }
    let failure = Failure::infrastructure(anyhow!("no node was reached: {}", told.join("; ")));
    let keyed = fabric.is_secure();
    let refused = failed.iter().any(|target| target.refused);
    Err(failure.hint_if(refused.then_some(match keyed {
        true => "all nodes of a domain need the same key file, and clocks that agree",
        false => "if the domain has a key, give it with --key; `phalanx domain show` tells of keys",
    })))
}

/// What to say of the targets that were named, and of those that refused.
fn reasons(named: &[String], failed: &[Unreached]) -> Vec<String> {
    let counts = |target: &&Unreached| target.refused || named.contains(&target.target);
    failed.iter().filter(counts).map(|target| format!("{}: {}", target.target, target.reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_count_anywhere_and_silence_only_where_an_address_was_given() {
        let failed =
            |target: &str, refused| Unreached { target: target.into(), reason: "why".into(), refused };
        let all = [failed("h:1", false), failed("left-over-0001", false), failed("n-0001", true)];
        assert_eq!(reasons(&["h:1".to_owned(), "h:2".to_owned()], &all), ["h:1: why", "n-0001: why"]);
        assert_eq!(reasons(&[], &all[..2]), Vec::<String>::new());
    }
}
