//! The arithmetic of a round: what members learned alone becomes one new state.
//!
//! ```text
//!   anchor ──► local work of member i ──► delta_i = anchor - parameters, learned from n_i samples
//!      ^                                      |  average = Σ n_i / Σ n · delta_i
//!      |     Mean:   anchor - average         v
//!      +──── Outer:  velocity = momentum · velocity + average
//!                    anchor - lr (momentum · velocity + average)              (Nesterov)
//! ```
//! It does not matter here how deltas come together: over links between members, or at a coordinator.

/// How the average of all deltas becomes the next state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    /// The average of the members' parameters.
    Mean,
    /// The average of deltas is a gradient for an outer optimizer with Nesterov momentum.
    Outer {
        /// Learning rate of the outer optimizer.
        lr: f32,
        /// How much of its velocity remains after a round.
        momentum: f32,
    },
}

impl Aggregate {
    /// Turns the values of the anchor into those of the next state.
    pub fn apply(self, values: &mut [f32], velocity: &mut [f32], average: &[f32]) {
        match self {
            Self::Mean => values.iter_mut().zip(average).for_each(|(value, average)| *value -= average),
            Self::Outer { lr, momentum } => {
                for ((value, velocity), average) in values.iter_mut().zip(velocity).zip(average) {
                    *velocity = momentum * *velocity + average;
                    *value -= lr * (momentum * *velocity + average);
                }
            }
        }
    }
}

/// What a member learned since the anchor.
pub fn delta(anchor: &[f32], now: &[f32]) -> Vec<f32> {
    anchor.iter().zip(now).map(|(anchor, now)| anchor - now).collect()
}

/// The weight of a member that learned from this many of all samples of a round.
pub fn weight(samples: u64, of_all: u64) -> f32 {
    samples as f32 / of_all.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_points_from_the_parameters_to_the_anchor() {
        assert_eq!(delta(&[1.0, -2.0, 0.5], &[0.75, -1.0, 0.5]), [0.25, -1.0, 0.0]);
    }

    #[test]
    fn weights_follow_samples() {
        assert_eq!([weight(1, 8), weight(2, 8), weight(5, 8)], [0.125, 0.25, 0.625]);
        assert_eq!((weight(0, 8), weight(0, 0), weight(3, 0)), (0.0, 0.0, 3.0));
    }

    #[test]
    fn the_mean_of_deltas_is_the_mean_of_parameters() {
        // Members at 0.5 (3 of 4 samples) and -1.5 (1 of 4) have learned 0.5 and 2.5 since an anchor of 1.
        let average = weight(3, 4) * 0.5 + weight(1, 4) * 2.5;
        let (mut values, mut velocity) = ([1.0], [9.0]);
        Aggregate::Mean.apply(&mut values, &mut velocity, &[average]);
        assert_eq!((values, velocity), ([0.75 * 0.5 + 0.25 * -1.5], [9.0]), "the velocity stays");
    }

    #[test]
    fn the_outer_optimizer_takes_nesterov_steps() {
        let outer = Aggregate::Outer { lr: 0.5, momentum: 0.25 };
        let (mut values, mut velocity) = ([1.0, 1.0], [0.0, 4.0]);
        outer.apply(&mut values, &mut velocity, &[1.0, -1.0]);
        // Velocities 0.25 · 0 + 1 = 1 and 0.25 · 4 - 1 = 0; steps 0.5 (0.25 + 1) and 0.5 (0 - 1).
        assert_eq!((values, velocity), ([0.375, 1.5], [1.0, 0.0]));
        outer.apply(&mut values, &mut velocity, &[2.0, 0.0]);
        // 0.25 · 1 + 2 = 2.25 and 0; 0.5 (0.5625 + 2) = 1.28125 and 0.
        assert_eq!((values, velocity), ([-0.90625, 1.5], [2.25, 0.0]));
    }
}
