//! What ranks tell each other after every step, and what follows from it.

/// What a rank wishes to happen at this boundary between steps. The greatest wish of all ranks is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wish {
    #[default]
    GoOn = 0,
    /// Form the group anew: a node wants to come in.
    Reform = 1,
    /// End the run here.
    Stop = 2,
}

impl Wish {
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Wish::GoOn,
            1 => Wish::Reform,
            2 => Wish::Stop,
            _ => return None,
        })
    }
}

/// One rank's word on the step that it has computed but not yet applied.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    /// Which samples it computed: the sum of [`mark`] over them.
    pub seen: u64,
    /// What its parameters were before the step, in short; 0 when it did not look.
    pub hash: u64,
    /// Whether it holds what the step starts from.
    pub standing: Standing,
}

/// Whether a rank holds the state of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    #[default]
    Level,
    /// It has come new: the state is on its way, and it remembers what happens meanwhile.
    Catching,
    /// So much has happened meanwhile that it wants the state as it is now.
    Late,
}

/// A number for a sample. Two sets of samples are the same if the sums of their marks are equal.
pub fn mark(sample: u64) -> u64 {
    let mut x = sample.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
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
    /// Which samples all of them computed: the sum of [`mark`].
    pub seen: u64,
    /// The first rank whose parameters differ from the first rank that holds the state.
    pub differs: Option<usize>,
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
    pub const LEN: usize = 56;

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
        bytes[34] = self.standing as u8;
        bytes[40..48].copy_from_slice(&self.seen.to_le_bytes());
        bytes[48..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let long = |at: usize| bytes[at..].first_chunk::<8>().copied();
        let short = |at: usize| bytes[at..].first_chunk::<4>().copied().map(u32::from_le_bytes);
        let wish = Wish::from_code(bytes[33])?;
        let standing = match bytes[34] {
            0 => Standing::Level,
            1 => Standing::Catching,
            2 => Standing::Late,
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
            seen: u64::from_le_bytes(long(40)?),
            hash: u64::from_le_bytes(long(48)?),
            standing,
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
        seen: votes.iter().fold(0, |seen, vote| seen.wrapping_add(vote.seen)),
        differs: differs(votes),
    })
}

fn differs(votes: &[Vote]) -> Option<usize> {
    let is_level = |vote: &Vote| vote.standing == Standing::Level;
    let hash = votes.iter().find(|vote| is_level(vote))?.hash;
    votes.iter().position(|vote| is_level(vote) && vote.hash != hash)
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
            seen: 1 << 63,
            hash: 77,
            standing: Standing::Level,
        }
    }

    #[test]
    fn votes_survive_the_wire() {
        let vote = Vote { finite: false, standing: Standing::Late, ..vote(1 << 40, Wish::Stop) };
        assert_eq!(Vote::from_bytes(&vote.to_bytes()), Some(vote));
        let mut broken = vote.to_bytes();
        broken[33] = 9;
        assert_eq!(Vote::all(&[vote.to_bytes(), broken].concat()), Err(VoteError::Bytes { rank: 1 }));
    }

    #[test]
    fn the_greatest_wish_is_done_and_losses_add_up() {
        let votes =
            [vote(3, Wish::GoOn), vote(3, Wish::Reform), Vote { compute_us: 1000, ..vote(3, Wish::GoOn) }];
        let outcome = Outcome {
            loss: 0.75,
            samples: 48,
            not_finite: None,
            wish: Wish::Reform,
            slowest: 2,
            seen: 1 << 63,
            differs: None,
        };
        assert_eq!(count(&votes), Ok(outcome));
        let other = Vote { hash: 78, ..vote(3, Wish::GoOn) };
        assert_eq!(count(&[vote(3, Wish::GoOn), other]).unwrap().differs, Some(1));
        let catching = Vote { standing: Standing::Catching, ..other };
        assert_eq!(count(&[catching, vote(3, Wish::GoOn), catching]).unwrap().differs, None);
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
