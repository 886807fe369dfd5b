//! Spilled values.

use bytes::Bytes;
use phalanx_segments::{Spill, SpillError, SpillSettings};

const MIB: usize = 1 << 20;

fn spill(directory: &std::path::Path, limit_mib: u64) -> Spill {
    Spill::open(directory, &SpillSettings { limit_bytes: limit_mib << 20, segment_bytes: 4 << 20 }).unwrap()
}

fn filled(byte: u8) -> Bytes {
    vec![byte; MIB].into()
}

#[test]
fn values_come_back_and_leave_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let spill = spill(directory.path(), 100);
    let values: Vec<_> = (0..10).map(|byte| spill.put([filled(byte), filled(byte)]).unwrap()).collect();
    for (byte, value) in (0_u8..).zip(&values) {
        assert!(value.read().unwrap() == value.map().unwrap());
        assert!(value.map().unwrap().iter().all(|b| *b == byte) && value.len() == 2 * MIB as u64);
        assert_eq!(value.reference().unwrap().offset % 4096, 0, "tensors are aligned");
    }
    assert_eq!(spill.put([]).unwrap().read().unwrap(), Bytes::new());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn space_is_bounded_and_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let spill = spill(directory.path(), 10);
    let mut values: Vec<_> = (0..10).map(|byte| spill.put([filled(byte)]).unwrap()).collect();
    let error = spill.put([filled(10)]).unwrap_err();
    assert!(
        matches!(error, SpillError::Full { used, limit, len } if used == limit && len == MIB as u64),
        "{error}"
    );
    assert_eq!(spill.segments(), 3);
    // One value of each segment: their space is free at once, though no segment is empty.
    for at in [0, 3, 6] {
        values.remove(at);
    }
    assert_eq!((spill.used_bytes(), spill.segments()), (7 << 20, 3));
    values.extend((20..23).map(|byte| spill.put([filled(byte)]).unwrap()));
    assert!(spill.put([filled(10)]).is_err());
    for value in &values {
        let bytes = value.read().unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    }
    drop(values);
    assert_eq!((spill.used_bytes(), spill.segments() <= 1), (0, true), "empty segments are gone");
}

#[test]
fn a_map_keeps_its_value() {
    let directory = tempfile::tempdir().unwrap();
    let spill = spill(directory.path(), 10);
    let value = spill.put([filled(7)]).unwrap();
    let mapped = value.map().unwrap();
    drop(value);
    assert_eq!(spill.used_bytes(), MIB as u64);
    let other = spill.put([mapped.clone()]).unwrap();
    assert!(mapped.iter().all(|byte| *byte == 7));
    drop(mapped);
    assert_eq!(spill.used_bytes(), MIB as u64);
    assert!(other.read().unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn views_are_parts_of_one_map_and_stay_right_when_they_are_trimmed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = SpillSettings { segment_bytes: 1 << 20, ..SpillSettings::default() };
    let spill = Spill::open(directory.path(), &settings).unwrap();
    let mut views = Vec::new();
    for number in 0..100u8 {
        let value = Bytes::from(vec![number; 50_000 + usize::from(number)]);
        let stored = spill.put([value.clone()]).unwrap();
        stored.check().unwrap();
        views.push((value, stored.view().unwrap()));
        // The view keeps the value.
        drop(stored);
    }
    assert!(views.iter().all(|(value, view)| value == view));
    spill.trim_views();
    assert!(views.iter().all(|(value, view)| value == view));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_spill = maps.lines().filter(|line| line.contains(&*directory.path().to_string_lossy())).count();
    assert!((1..=12).contains(&of_spill), "{of_spill} maps for 100 values in 5 segments");
    views.clear();
    assert_eq!(spill.used_bytes(), 0);
}
