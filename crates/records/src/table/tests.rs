use super::*;
use crate::run_dir::METRICS;

/// A run directory with these lines of metrics.
fn run_with(lines: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("state.json"), "{}").unwrap();
    std::fs::write(dir.path().join(crate::run_dir::RUN_FILE), "").unwrap();
    std::fs::write(dir.path().join(METRICS), lines).unwrap();
    dir
}

const LINES: &str = r#"{"step":1,"pass":1,"loss":2.5,"lr":0.1,"unix_ms":1000}
{"step":2,"pass":1,"loss":1.5,"lr":0.1}
{"step":2,"pass":1,"val_loss":1.25,"val_acc":0.5}
{"step":3,"pass":2,"loss":1.0,"lr":0.05,"replicas":[{"node":"a"}]}
{"step":4,"pass":2,"lo"#;

#[test]
fn steps_and_their_validations_are_rows_and_torn_lines_are_not() {
    let run = run_with(LINES);
    let table = RunTable::read(run.path()).unwrap();
    assert_eq!(table.metrics().collect::<Vec<_>>(), ["loss", "lr", "val_acc", "val_loss"]);
    let steps: Vec<(u64, u64, Option<u64>)> =
        table.rows().iter().map(|row| (row.step, row.pass, row.unix_ms)).collect();
    assert_eq!(steps, [(1, 1, Some(1000)), (2, 1, None), (3, 2, None)]);
    assert_eq!(table.column("val_acc").map(|(row, value)| (row.step, value)).collect::<Vec<_>>(), [(2, 0.5)]);
    assert_eq!(table.column("loss").map(|(_, value)| value).collect::<Vec<_>>(), [2.5, 1.5, 1.0]);
}

#[test]
fn lines_of_one_step_are_one_row_in_any_order() {
    let lines = r#"{"step":5,"pass":0,"loss":2.0}
{"step":1,"pass":0,"loss":3.0}
{"step":5,"pass":0,"own":7.0}
{"step":5,"pass":0,"loss":1.0}
"#;
    let table = RunTable::read(run_with(lines).path()).unwrap();
    let values = |metric| table.column(metric).map(|(row, value)| (row.step, value)).collect::<Vec<_>>();
    assert_eq!(values("loss"), [(1, 3.0), (5, 1.0)]);
    assert_eq!((values("own"), table.rows().len()), (vec![(5, 7.0)], 2));
}

#[test]
fn what_was_recorded_after_a_cut_does_not_count() {
    let mut table = RunTable::default();
    for step in 1..=4 {
        table.add(Row { step, pass: 1, unix_ms: None }, [("loss", step as f64)].into_iter());
    }
    table.add(Row { step: 4, pass: 1, unix_ms: None }, [("val_acc", 0.5)].into_iter());
    table.add_entry(&Entry::Cut { step: 2, metrics_bytes: 0 });
    assert_eq!(table.rows().iter().map(|row| row.step).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(table.metrics().collect::<Vec<_>>(), ["loss"]);
}

#[test]
fn csv_has_all_metrics_of_all_runs_and_quotes_names() {
    let run = run_with(LINES);
    let mut first = RunTable::read(run.path()).unwrap();
    first.run = "a,\"b\"".to_owned();
    let mut other = RunTable { run: "=cmd".to_owned(), ..RunTable::default() };
    other.add(Row { step: 7, pass: 1, unix_ms: None }, [("own", 0.1)].into_iter());
    let mut text = Vec::new();
    write_csv(&[first, other], &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "run,step,pass,unix_ms,loss,lr,own,val_acc,val_loss\n\
         \"a,\"\"b\"\"\",1,1,1000,2.5,0.1,,,\n\
         \"a,\"\"b\"\"\",2,1,,1.5,0.1,,0.5,1.25\n\
         \"a,\"\"b\"\"\",3,2,,1,0.05,,,\n\
         '=cmd,7,1,,,,0.1,,\n"
    );
}

#[test]
fn parquet_reads_back_with_nulls_where_nothing_was_measured() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    let run = run_with(LINES);
    let table = RunTable::read(run.path()).unwrap();
    let mut bytes = Vec::new();
    write_parquet(&[table], &mut bytes).unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert_eq!(rows.len(), 3);
    assert!(rows[1].contains("val_acc: 0.5") && rows[2].contains("val_acc: null"), "{rows:?}");
}

#[test]
fn what_is_no_run_is_an_error_and_garbage_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(RunTable::read(dir.path()), Err(RunDirError::NotARun { .. })));
    let run = run_with("nonsense\n[1]\n{\"step\":-1}\n{\"step\":1,\"loss\":null}\n\n");
    let table = RunTable::read(run.path()).unwrap();
    assert_eq!(table.rows().len(), 1);
    assert!(table.column("loss").all(|(_, loss)| loss.is_nan()), "what JSON cannot say is null");
}
