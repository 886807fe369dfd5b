use super::*;
use crate::run_dir::{EventLog, Records, StepRecord, ValidRecord, annotate};
use crate::{Event, RunEvent};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

fn step(step: u64, loss: f32) -> StepRecord {
    StepRecord { step, pass: 1, loss, lr: 0.1, grad_norm: 1.0, samples_per_s: 10.0, replicas: None }
}

/// What a reader knows: the loss of each step, and the events.
#[derive(Debug, Default, PartialEq)]
struct Known {
    losses: BTreeMap<u64, (u64, f64)>,
    events: Vec<u64>,
}

impl Known {
    fn add(&mut self, batch: Batch) {
        assert_eq!(batch.unreadable, 0);
        for entry in batch.entries {
            match entry {
                Entry::Event(event) => self.events.push(event.seq),
                Entry::Cut { metrics_bytes, .. } => self.losses.retain(|_, (at, _)| *at < metrics_bytes),
                Entry::Step(metrics) => {
                    let loss = metrics.values.iter().find(|(name, _)| name == "loss").unwrap().1;
                    let known = self.losses.insert(metrics.step, (metrics.at, loss));
                    assert_eq!(known, None, "step {} came twice", metrics.step);
                }
                Entry::Valid(_) | Entry::Annotation { .. } => {}
            }
        }
    }
}

fn read_all(run: &Path, known: &mut Known, position: &mut Position) {
    loop {
        let batch = read_from(run, position).unwrap();
        if batch.position == *position && batch.entries.is_empty() {
            return;
        }
        *position = batch.position;
        known.add(batch);
    }
}

/// A reader that looks after each write, one that looks at some, and one that looks at the end agree with the files.
#[test]
fn readers_at_any_moments_know_the_same_in_the_end() {
    for every in [1, 2, 3, 5, 1000] {
        let tmp = tempfile::tempdir().unwrap();
        let run = tmp.path();
        let (mut known, mut position, mut writes) = (Known::default(), Position::default(), 0);
        let mut look = || {
            writes += 1;
            if writes % every == 0 {
                read_all(run, &mut known, &mut position);
            }
        };
        let mut log = EventLog::open(run).unwrap();
        let mut records = Records::open(run, None).unwrap();
        look();
        log.write(0, &Event::Opened(log.opening(0, 0))).unwrap();
        look();
        for life in 0..4_u64 {
            let mut sizes = None;
            for number in life * 3 + 1..=life * 3 + 8 {
                records.step(&step(number, life as f32)).unwrap();
                look();
                if number == life * 3 + 3 {
                    sizes = Some(records.sync().unwrap());
                    log.write(0, &Event::Note("saved".to_owned())).unwrap();
                    look();
                }
            }
            // Killed; the next life goes on from the checkpoint.
            let sizes = sizes.unwrap();
            records = Records::open(run, Some(sizes)).unwrap();
            look();
            log.write(0, &Event::Opened(log.opening(life * 3 + 3, sizes.metrics))).unwrap();
            look();
        }
        read_all(run, &mut known, &mut position);
        let mut fresh = Known::default();
        read_all(run, &mut fresh, &mut Position::default());
        assert_eq!(known, fresh, "looking after every {every} writes");
        let losses: Vec<(u64, f64)> = known.losses.iter().map(|(step, (_, loss))| (*step, *loss)).collect();
        let wanted: Vec<(u64, f64)> = (1..=12).map(|step| (step, ((step - 1) / 3) as f64)).collect();
        assert_eq!(losses, wanted);
        assert_eq!(known.events, (0..9).collect::<Vec<u64>>());
    }
}

#[test]
fn half_lines_wait_and_damaged_ones_are_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join(METRICS);
    std::fs::write(&path, "{\"step\":1,\"loss\":0.5}\nnot json\n\n{\"step\":2,\"lo").unwrap();
    let batch = read_from(tmp.path(), &Position::default()).unwrap();
    assert_eq!((batch.entries.len(), batch.unreadable), (1, 1));
    let again = read_from(tmp.path(), &batch.position).unwrap();
    assert_eq!((again.entries.len(), again.position), (0, batch.position));
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"ss\":null,\"big\":\"Infinity\",\"name\":\"x\"}\n").unwrap();
    let rest = read_from(tmp.path(), &batch.position).unwrap();
    let [Entry::Step(metrics)] = &rest.entries[..] else { panic!("{rest:?}") };
    let names: Vec<&str> = metrics.values.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["big", "loss"]);
    assert!(metrics.values[0].1.is_infinite() && metrics.values[1].1.is_nan());
}

#[test]
fn long_files_come_in_parts_and_a_line_may_be_longer_than_a_part() {
    let tmp = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for number in 1..=40_000 {
        text +=
            &format!("{{\"step\":{number},\"loss\":0.5,\"seen\":\"0123456789abcdef0123456789abcdef\"}}\n");
    }
    text += &format!("{{\"step\":40001,\"loss\":1.0,\"seen\":\"{}\"}}\n", "x".repeat(3 << 20));
    std::fs::write(tmp.path().join(METRICS), text).unwrap();
    let (mut known, mut position) = (Known::default(), Position::default());
    read_all(tmp.path(), &mut known, &mut position);
    assert_eq!((known.losses.len(), known.losses[&40_001].1), (40_001, 1.0));
}

#[test]
fn annotations_come_with_their_time() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("run.toml"), "").unwrap();
    let note = Annotation::Note("good".to_owned());
    assert!(annotate(tmp.path(), &note).is_err(), "not a run yet");
    std::fs::write(tmp.path().join("state.json"), "{}").unwrap();
    let set = Annotation::Set([("owner".to_owned(), "ada".to_owned())].into());
    let all = [set, Annotation::Remove("owner".to_owned()), note];
    for annotation in &all {
        annotate(tmp.path(), annotation).unwrap();
    }
    let batch = read_from(tmp.path(), &Position::default()).unwrap();
    let annotation = |entry: &Entry| match entry {
        Entry::Annotation { unix_ms, annotation } if *unix_ms > 1_700_000_000_000 => annotation.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(batch.entries.iter().map(annotation).collect::<Vec<_>>(), all);
}

#[test]
fn events_of_a_run_are_lines_but_steps_are_not() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = crate::run_dir::RunDir::create(tmp.path().join("run")).unwrap();
    let mut kept = Vec::new();
    let mut keep = |event: RunEvent| kept.push(event.event);
    let mut events = crate::Events::of_run(&dir, &mut keep).unwrap();
    events.on_opened(0, 0).unwrap();
    events.on(Event::Lost { node: "n2".to_owned(), why: "n2 is lost: <b>\u{1b}[31m\n".to_owned() });
    events.on(Event::Step(step(1, 0.5)));
    events.on(Event::Validated(ValidRecord {
        step: 1,
        pass: 1,
        val_loss: 0.5,
        val_acc: None,
        metrics: BTreeMap::new(),
    }));
    assert_eq!(kept.len(), 4);
    let batch = read_from(dir.path(), &Position::default()).unwrap();
    let [Entry::Event(opened), Entry::Cut { step: 0, metrics_bytes: 0 }, Entry::Event(lost)] =
        &batch.entries[..]
    else {
        panic!("{batch:?}")
    };
    assert_eq!(
        (opened.event.as_str(), opened.seq, opened.value["uid"].as_str().unwrap().len()),
        ("opened", 0, 32)
    );
    assert_eq!((lost.event.as_str(), &lost.value["node"]), ("lost", &"n2".into()));
    assert_eq!(lost.value["why"], "n2 is lost: <b>\u{1b}[31m\n");
}

/// Decimal numbers are read as exactly as they are written.
#[test]
fn values_are_read_to_the_bit() {
    let tmp = tempfile::tempdir().unwrap();
    let mut records = Records::open(tmp.path(), None).unwrap();
    let mut bits = 42u64;
    let mut written = Vec::new();
    for step in 1..=5000 {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Of all sizes, and as losses are.
        let (any, usual) = (f64::from_bits(bits), (bits >> 11) as f64 / (1u64 << 53) as f64);
        let any = if any.is_finite() { any } else { 0.5 };
        let metrics = [("val_any".to_owned(), any)].into();
        records.valid(&ValidRecord { step, pass: 1, val_loss: usual, val_acc: None, metrics }).unwrap();
        written.push((usual.to_bits(), any.to_bits()));
    }
    let (mut position, mut read) = (Position::default(), Vec::new());
    loop {
        let batch = read_from(tmp.path(), &position).unwrap();
        if batch.position == position {
            break;
        }
        position = batch.position;
        for entry in batch.entries {
            let Entry::Valid(metrics) = entry else { panic!("{entry:?}") };
            let value =
                |wanted: &str| metrics.values.iter().find(|(name, _)| name == wanted).unwrap().1.to_bits();
            read.push((value("val_loss"), value("val_any")));
        }
    }
    assert_eq!(read.len(), written.len());
    let wrong = read.iter().zip(&written).filter(|(read, written)| read != written).count();
    assert_eq!(wrong, 0, "of {} records", written.len());
}
