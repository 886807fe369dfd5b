//! Bandwidths and times in human-readable units.

/// Bytes per second from `100Mbit`, `1 Gbit/s`, `80Mbps` or `50MiB/s`.
pub(crate) fn bandwidth(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let bytes_per_s = match unit.strip_suffix("/s").unwrap_or(&unit) {
        "bit" | "bps" => number / 8.0,
        "kbit" | "kbps" => shifted(number, 3) / 8.0,
        "mbit" | "mbps" => shifted(number, 6) / 8.0,
        "gbit" | "gbps" => shifted(number, 9) / 8.0,
        // Bytes only count with `/s`: `MiB` alone is a size.
        bytes if unit.ends_with("/s") => number * byte_unit(bytes)?,
        _ => return None,
    };
    Some(bytes_per_s).filter(|b| *b > 0.0)
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
    let digits = match unit {
        "s" => 0,
        "ms" => -3,
        "us" | "µs" => -6,
        "ns" => -9,
        _ => return None,
    };
    Some(shifted(number, digits))
}

/// Moves the decimal point `digits` to the right. Unlike a product with a power of ten the result is exactly rounded:
/// 0.00009 becomes 0.09, not 0.09000000000000001.
pub(crate) fn shifted(number: f64, digits: i32) -> f64 {
    let text = format!("{number:e}");
    let moved = text.split_once('e').and_then(|(digits_of, exponent)| {
        let exponent: i32 = exponent.parse().ok()?;
        format!("{digits_of}e{}", exponent + digits).parse().ok()
    });
    // Only infinity and NaN have no exponent.
    moved.unwrap_or(number)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// A bandwidth that [`bandwidth`] can parse.
pub(crate) fn bandwidth_text(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    let (digits, unit) = if bits >= 1e9 { (-9, "Gbit") } else { (-6, "Mbit") };
    let short = format!("{}{unit}", shifted(bits, digits));
    if bandwidth(&short) == Some(bytes_per_s) { short } else { format!("{bytes_per_s}B/s") }
}

/// A number of bytes in the largest unit in which it is whole.
pub(crate) fn size_text(bytes: u64) -> String {
    let unit =
        [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, bits)| bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| bytes.to_string(), |(unit, bits)| format!("{}{unit}", bytes >> bits))
}

/// A time that [`duration`] can parse.
pub(crate) fn duration_text(seconds: f64) -> String {
    let short = format!("{}ms", shifted(seconds, 3));
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
            [Some(1e-3), Some(30e-6), Some(2.0)]
        );
        assert_eq!([duration("1"), duration("1h"), duration("x")], [None; 3]);
    }

    #[test]
    fn what_is_written_is_short_and_reads_back_the_same() {
        for (seconds, text) in [(9e-5, "0.09ms"), (2e-4, "0.2ms"), (1.234e-4, "0.1234ms"), (0.0, "0ms")] {
            assert_eq!((duration_text(seconds).as_str(), duration(text)), (text, Some(seconds)));
        }
        for (bytes, text) in
            [(12.5e6, "100Mbit"), (1e9, "8Gbit"), (4.321e8, "3.4568Gbit"), (2.3e5, "1.84Mbit")]
        {
            assert_eq!((bandwidth_text(bytes).as_str(), bandwidth(text)), (text, Some(bytes)));
        }
        // Four digits of any size, as measured, and all digits that there are.
        for i in 1..2000 {
            let measured = |tens: i32| shifted(f64::from(1000 + 4 * i + 1), tens);
            for x in [measured(-8), measured(-6), measured(3), measured(6), (f64::from(i)).sqrt() / 7.0] {
                assert_eq!(duration(&duration_text(x)), Some(x));
                assert_eq!(bandwidth(&bandwidth_text(x)), Some(x));
            }
            assert!(duration_text(measured(-8)).len() <= 12, "{}", duration_text(measured(-8)));
        }
    }
}
