//! What the ledger decides, without a database: rows from records, the language of `--where`, reduction of curves.

pub mod filter;
pub(crate) mod flatten;
pub(crate) mod fold;
pub mod reduce;

/// Longer texts of users are cut.
const MOST_CHARS: usize = 64 << 10;

/// A text of a user as a database takes it.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= MOST_CHARS { text } else { text.chars().take(MOST_CHARS / 4).collect() }
}

/// Whether lower values of a metric are better, as far as its name says.
pub fn lower_is_better(metric: &str) -> bool {
    const LOWER: [&str; 11] =
        ["loss", "err", "mse", "mae", "rmse", "perplexity", "ppl", "nll", "regret", "latency", "time"];
    let name = metric.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| LOWER.iter().any(|word| part.starts_with(word)))
}

#[cfg(test)]
mod tests {
    use super::lower_is_better;

    #[test]
    fn losses_and_errors_are_better_when_lower() {
        for name in ["loss", "val_loss", "error", "val_rmse", "step/latency_ms"] {
            assert!(lower_is_better(name), "{name}");
        }
        for name in ["val_acc", "f1", "samples_per_s", "closs"] {
            assert!(!lower_is_better(name), "{name}");
        }
    }
}
