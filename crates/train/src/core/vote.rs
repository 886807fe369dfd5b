//! What ranks tell each other after every step, and what follows from it.

/// What a rank wishes to happen at this boundary between steps. The greatest wish of all ranks is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wish {
    #[default]
    GoOn = 0,
    /// Write a checkpoint now.
    Save = 1,
    /// Form the group anew: somebody wants to come in.
    Reform = 2,
    /// End the run here.
    Stop = 3,
}

/// One rank's word on the step that it has computed but not yet applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vote {
    /// The step, from 0.
    pub step: u64,
    /// Its samples' part of the mean loss over the whole batch.
    pub loss: f64,
    /// Samples it computed.
    pub samples: u32,
    /// Whether everything it computed is finite.
    pub finite: bool,
    pub wish: Wish,
    /// Microseconds it computed, exchanged without computing, and waited for others.
    pub compute_us: u32,
    pub exchange_us: u32,
    pub wait_us: u32,
}

/// What a step came to, the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub loss: f64,
    pub samples: u64,
    /// The first rank that computed something that is not finite.
    pub not_finite: Option<usize>,
    pub wish: Wish,
    /// The rank that computed longest.
    pub slowest: usize,
}

/// Why votes cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteError {
    #[error("rank {rank} voted on step {theirs}, rank 0 on step {ours}")]
    Step { rank: usize, theirs: u64, ours: u64 },
    #[error("the vote of rank {rank} makes no sense")]
    Bytes { rank: usize },
    #[error("nobody voted")]
    Nobody,
}

impl Vote {
    /// Bytes of a vote.
    pub const LEN: usize = 40;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.step.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.loss.to_le_bytes());
        let numbers = [self.samples, self.compute_us, self.exchange_us, self.wait_us];
        for (place, number) in bytes[16..32].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32] = u8::from(self.finite);
        bytes[33] = self.wish as u8;
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let long = |at: usize| bytes[at..].first_chunk::<8>().copied();
        let short = |at: usize| bytes[at..].first_chunk::<4>().copied().map(u32::from_le_bytes);
        let wish = match bytes[33] {
            0 => Wish::GoOn,
            1 => Wish::Save,
            2 => Wish::Reform,
            3 => Wish::Stop,
            _ => return None,
        };
        Some(Self {
            step: u64::from_le_bytes(long(0)?),
            loss: f64::from_le_bytes(long(8)?),
            samples: short(16)?,
            compute_us: short(20)?,
            exchange_us: short(24)?,
            wait_us: short(28)?,
            finite: bytes[32] == 1,
            wish,
        })
    }

    /// The votes of all ranks, as an all-gather hands them out.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn all(bytes: &[u8]) -> Result<Vec<Self>, VoteError> {
        let (votes, _) = bytes.as_chunks::<{ Self::LEN }>();
        let read = |(rank, bytes)| Self::from_bytes(bytes).ok_or(VoteError::Bytes { rank });
        votes.iter().enumerate().map(read).collect()
    }
}

/// Counts the votes of all ranks, in the order of ranks.
///
/// # Errors
/// They are not about the same step.
pub fn count(votes: &[Vote]) -> Result<Outcome, VoteError> {
    let first = votes.first().ok_or(VoteError::Nobody)?;
    if let Some((rank, vote)) = votes.iter().enumerate().find(|(_, vote)| vote.step != first.step) {
        return Err(VoteError::Step { rank, theirs: vote.step, ours: first.step });
    }
    let slowest = votes.iter().enumerate().max_by_key(|(rank, vote)| (vote.compute_us, usize::MAX - rank));
    Ok(Outcome {
        loss: votes.iter().map(|vote| vote.loss).sum(),
        samples: votes.iter().map(|vote| u64::from(vote.samples)).sum(),
        not_finite: votes.iter().position(|vote| !vote.finite),
        wish: votes.iter().map(|vote| vote.wish).max().unwrap_or_default(),
        slowest: slowest.map_or(0, |(rank, _)| rank),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(step: u64, wish: Wish) -> Vote {
        Vote {
            step,
            loss: 0.25,
            samples: 16,
            finite: true,
            wish,
            compute_us: 900,
            exchange_us: 30,
            wait_us: 7,
        }
    }

    #[test]
    fn votes_survive_the_wire() {
        let vote = Vote { finite: false, ..vote(1 << 40, Wish::Stop) };
        assert_eq!(Vote::from_bytes(&vote.to_bytes()), Some(vote));
        let mut broken = vote.to_bytes();
        broken[33] = 9;
        assert_eq!(Vote::all(&[vote.to_bytes(), broken].concat()), Err(VoteError::Bytes { rank: 1 }));
    }

    #[test]
    fn the_greatest_wish_is_done_and_losses_add_up() {
        let votes =
            [vote(3, Wish::GoOn), vote(3, Wish::Reform), Vote { compute_us: 1000, ..vote(3, Wish::Save) }];
        let outcome = Outcome { loss: 0.75, samples: 48, not_finite: None, wish: Wish::Reform, slowest: 2 };
        assert_eq!(count(&votes), Ok(outcome));
    }

    #[test]
    fn one_bad_rank_spoils_the_step_for_all_and_other_steps_are_an_error() {
        let bad = Vote { finite: false, ..vote(3, Wish::GoOn) };
        assert_eq!(count(&[vote(3, Wish::GoOn), bad]).unwrap().not_finite, Some(1));
        let error = VoteError::Step { rank: 1, theirs: 4, ours: 3 };
        assert_eq!(count(&[vote(3, Wish::GoOn), vote(4, Wish::GoOn)]), Err(error));
        assert_eq!(count(&[]), Err(VoteError::Nobody));
    }
}
