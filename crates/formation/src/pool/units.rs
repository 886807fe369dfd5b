//! Bandwidths and times as people write them.

/// Bytes per second from `100Mbit`, `1 Gbit/s`, `80Mbps` or `50MiB/s`.
pub(crate) fn bandwidth(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let scale = match unit.strip_suffix("/s").unwrap_or(&unit) {
        "bit" | "bps" => 1.0 / 8.0,
        "kbit" | "kbps" => 1e3 / 8.0,
        "mbit" | "mbps" => 1e6 / 8.0,
        "gbit" | "gbps" => 1e9 / 8.0,
        // Bytes are only meant where it says per second: `MiB` alone is a size.
        bytes if unit.ends_with("/s") => byte_unit(bytes)?,
        _ => return None,
    };
    Some(number * scale).filter(|b| *b > 0.0)
}

fn byte_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// Seconds from `1ms`, `0.2 ms`, `30us` or `1s`.
pub(crate) fn duration(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some(number * scale)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// A bandwidth that [`bandwidth`] reads back.
pub(crate) fn bandwidth_text(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    let short = if bits >= 1e9 { format!("{}Gbit", bits / 1e9) } else { format!("{}Mbit", bits / 1e6) };
    if bandwidth(&short) == Some(bytes_per_s) { short } else { format!("{bytes_per_s}B/s") }
}

/// A number of bytes, in the largest unit that it is whole in.
pub(crate) fn size_text(bytes: u64) -> String {
    let unit =
        [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, bits)| bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| bytes.to_string(), |(unit, bits)| format!("{}{unit}", bytes >> bits))
}

/// A time that [`duration`] reads back.
pub(crate) fn duration_text(seconds: f64) -> String {
    let short = format!("{}ms", seconds * 1e3);
    if duration(&short) == Some(seconds) { short } else { format!("{seconds}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_and_times_read_as_people_write_them() {
        for (text, bytes) in [
            ("100Mbit", 12.5e6),
            ("1 Gbit/s", 125e6),
            ("80Mbps", 10e6),
            ("2MiB/s", 2097152.0),
            ("1.5 MB/s", 1.5e6),
        ] {
            assert_eq!(bandwidth(text), Some(bytes), "{text}");
        }
        for bad in ["", "100", "5MiB", "-1Mbit", "0Mbit", "fast", "1.2.3Mbit"] {
            assert_eq!(bandwidth(bad), None, "{bad}");
        }
        assert_eq!(
            [duration("1ms"), duration("30 us"), duration("2s")],
            [Some(1e-3), Some(30.0 * 1e-6), Some(2.0)]
        );
        assert_eq!([duration("1"), duration("1h"), duration("x")], [None; 3]);
    }
}
