//! How often something happens, and how long a run is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How often something happens: `"2 epochs"`, `"500 steps"`, `"30s"`, `"never"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    Passes(u64),
    Steps(u64),
    Time(Duration),
    Never,
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Length {
    Passes(u64),
    Steps(u64),
}

/// Why a text does not say how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected something like \"1 epoch\", \"500 steps\" or \"30s\"")]
pub struct ParseEveryError;

impl FromStr for Every {
    type Err = ParseEveryError;

    fn from_str(text: &str) -> Result<Self, ParseEveryError> {
        let text = text.trim();
        if text == "never" {
            return Ok(Every::Never);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number = number.parse().ok().filter(|n| *n > 0u64);
        match (number, unit.trim()) {
            (Some(n), "epoch" | "epochs" | "pass" | "passes") => Ok(Every::Passes(n)),
            (Some(n), "step" | "steps" | "") => Ok(Every::Steps(n)),
            _ => match humantime::parse_duration(text) {
                Ok(time) if !time.is_zero() => Ok(Every::Time(time)),
                _ => Err(ParseEveryError),
            },
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: &u64| if *n == 1 { "" } else { "s" };
        match self {
            Every::Passes(n) => write!(f, "{n} epoch{}", s(n)),
            Every::Steps(n) => write!(f, "{n} step{}", s(n)),
            Every::Time(time) => humantime::format_duration(*time).fmt(f),
            Every::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_read_as_people_write_them() {
        for (text, every) in [
            ("1 epoch", Every::Passes(1)),
            ("3epochs", Every::Passes(3)),
            ("500 steps", Every::Steps(500)),
            ("7", Every::Steps(7)),
            ("30s", Every::Time(Duration::from_secs(30))),
            ("2min", Every::Time(Duration::from_secs(120))),
            ("never", Every::Never),
        ] {
            assert_eq!(text.parse(), Ok(every), "{text}");
            assert_eq!(every.to_string().parse(), Ok(every), "{text}");
        }
        for bad in ["", "0 steps", "0s", "sometimes", "-1 steps", "1 fortnight"] {
            assert_eq!(bad.parse::<Every>(), Err(ParseEveryError), "{bad}");
        }
    }
}
