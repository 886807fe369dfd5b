//! Links, speeds and slow nodes as people write them.

use crate::args::duration;
use phalanx_sim::train::{Link, Slow};

/// Reads a number with a unit of a thousand, a million and so on: `50gflops` is 50e9 `flops`.
fn scaled(text: &str, unit: &str) -> Option<f64> {
    let lower = text.trim().to_ascii_lowercase();
    let rest = lower.strip_suffix(unit)?;
    let last = rest.chars().last()?;
    let (number, factor) = match last {
        'k' => (rest.strip_suffix('k')?, 1e3),
        'm' => (rest.strip_suffix('m')?, 1e6),
        'g' => (rest.strip_suffix('g')?, 1e9),
        't' => (rest.strip_suffix('t')?, 1e12),
        _ => (rest, 1.0),
    };
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * factor)
}

/// Reads a link: `1Gbps/20ms`, its rate and its latency one way.
pub(super) fn link(text: &str) -> Result<Link, String> {
    let wrong = || format!("expected a rate and a latency like 1Gbps/20ms, not {text:?}");
    let (rate, latency) = text.rsplit_once('/').ok_or_else(wrong)?;
    let bits = scaled(rate, "bps").ok_or_else(wrong)?;
    let latency = duration(latency).map_err(|_wrong| wrong())?;
    Ok(Link { bytes_per_sec: bits / 8.0, latency })
}

/// Reads a speed in floating-point operations per second: `50gflops`.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    scaled(text, "flops").ok_or_else(|| format!("expected a speed like 50gflops or 1.5tflops, not {text:?}"))
}

/// Reads which part of the nodes is how many times slower: `0.1x4`.
pub(super) fn slow(text: &str) -> Result<Slow, String> {
    let wrong = || format!("expected a part and a factor like 0.1x4, not {text:?}");
    let (part, times) = text.split_once('x').ok_or_else(wrong)?;
    let part: f64 = part.trim().parse().map_err(|_wrong| wrong())?;
    let times: f64 = times.trim().parse().map_err(|_wrong| wrong())?;
    let fits = (0.0..=1.0).contains(&part) && times.is_finite() && times > 0.0;
    fits.then_some(Slow { part, times }).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn links_speeds_and_slow_nodes_read_as_people_write_them() {
        let far = Link { bytes_per_sec: 125e6, latency: Duration::from_millis(20) };
        assert_eq!(link("1Gbps/20ms"), Ok(far));
        assert_eq!(link("100Mbps/0s").map(|link| link.bytes_per_sec), Ok(12.5e6));
        assert_eq!(speed("50gflops"), Ok(50e9));
        assert_eq!(speed("1.5TFLOPS"), Ok(1.5e12));
        assert_eq!(slow("0.1x4"), Ok(Slow { part: 0.1, times: 4.0 }));
        for bad in ["1Gbps", "fast/20ms", "0bps/1ms", "1Gbps/20", "-1Gbps/1ms"] {
            assert!(link(bad).is_err(), "{bad}");
        }
        assert!(speed("50").is_err() && slow("2x4").is_err() && slow("0.1").is_err());
    }
}
