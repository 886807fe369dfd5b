//! What always holds between two events; for tests and the simulator.

use super::StreamCore;
use super::links::Presence;

impl StreamCore {
    /// Checks the books of the core.
    ///
    /// # Panics
    /// They are wrong, which is a defect of the core.
    pub fn check_invariants(&self) {
        let uploads = self.state.uploads();
        let stored: u64 = uploads.iter().map(|upload| upload.stored().0).sum();
        assert_eq!(uploads.stored().0, stored, "bytes of kept samples");
        let in_flight = self.links.values().flat_map(|link| link.in_flight.values());
        assert_eq!(self.reserved, in_flight.map(|upload| upload.bytes.0).sum::<u64>(), "bytes on their way");
        if let Some(budget) = self.state.settings().budget {
            assert!(stored + self.reserved <= budget.0, "{stored} + {} of {budget}", self.reserved);
        }
        for held in &self.held {
            assert!(self.is_here(&held.producer.id), "{} waits and is not here", held.producer);
            assert!(held.told.is_some(), "{} waits without a reason", held.producer);
        }
        for (id, link) in &self.links {
            let lost = matches!(link.presence, Presence::Lost { .. });
            assert!(!lost || link.in_flight.is_empty(), "{id} is lost and uploads");
        }
        for (id, state) in self.state.readers() {
            for (first, uses) in state.needs() {
                assert!(*uses > 0 && uploads.get(*first).is_some(), "{id} needs a freed upload at {first}");
            }
            if let Some((cursor, pass)) = state.open_pass().filter(|_| state.ending().is_none()) {
                assert!(cursor.horizon <= uploads.arrived(), "{id} uses samples that have not arrived");
                for place in state.places(uploads, cursor.step) {
                    assert!(
                        place.is_some(),
                        "{id} has freed samples in step {} of {}",
                        cursor.step,
                        pass.steps()
                    );
                }
            }
            self.check_group(id);
        }
    }

    fn check_group(&self, reader: &phalanx_types::ReaderId) {
        let (Some(group), Some(state)) = (self.groups.get(reader), self.state.reader(reader)) else {
            panic!("{reader} has no group")
        };
        assert_eq!(group.idle_since.is_some(), group.all().next().is_none(), "{reader} is away or not");
        assert!(group.joining.is_empty() || !group.members.is_empty(), "{reader}: nobody computes");
        if state.ending().is_some() {
            return;
        }
        let open = state.open_pass().map(|(cursor, _)| cursor);
        for (id, member) in group.all() {
            let computes = |step| member.done <= step && group.members.contains_key(id);
            let waits = open.is_none_or(|cursor| !computes(cursor.step));
            assert_eq!(waits, member.told.is_some(), "{reader}: {id} waits and has a reason, or neither");
        }
        let Some(cursor) = open else { return };
        if let Some(done) = group.done_by_all() {
            assert!(
                done <= cursor.step,
                "{reader}: all have done step {} and it is not committed",
                cursor.step
            );
        }
    }
}
