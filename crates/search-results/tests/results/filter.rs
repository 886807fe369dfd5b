//! Which trials a listing shows.

use crate::synthetic::{events, table};
use phalanx_search_results::filter::select;
use phalanx_search_results::{Filter, FilterError, SearchTable, SortKey, TrialRow};

fn shown(table: &SearchTable, filter: &str, sort: &str) -> Vec<u64> {
    let filter = Filter::parse(filter).unwrap();
    select(table, &filter, &SortKey::parse_all(sort)).unwrap().iter().map(|row| row.trial.0).collect()
}

fn matching(table: &SearchTable, is_meant: impl Fn(&TrialRow) -> bool) -> Vec<u64> {
    table.rows().filter(|row| is_meant(row)).map(|row| row.trial.0).collect()
}

#[test]
fn comparisons_choose_trials() {
    let table = &table(&events());
    assert_eq!(shown(table, "", ""), (1..=30).collect::<Vec<_>>());
    assert_eq!(shown(table, "state=failed", ""), [3, 5]);
    assert_eq!(
        shown(table, "state = Failed and node=n1", ""),
        matching(table, |row| { row.status.name() == "failed" && row.node.as_deref() == Some("n1") })
    );
    let accurate = matching(table, |row| row.value("accuracy").is_some_and(|value| value > 0.7));
    assert!(accurate.len() > 3 && accurate.len() < 29);
    assert_eq!(shown(table, "accuracy>0.7", ""), accurate);
    assert_eq!(shown(table, "budget >= 9, accuracy > 0", ""), [11, 15, 19, 23, 27]);
    assert_eq!(shown(table, "budget>=9 AND trial!=t15", ""), [11, 19, 23, 27]);
    assert_eq!(
        shown(table, "kernel_size=3 and head=dense", ""),
        matching(table, |row| { row.genes.0[1] == 1 && row.genes.0[2] == 1 })
    );
    assert_eq!(
        shown(table, "width<=32", ""),
        matching(table, |row| row.genes.0[2] == 1 && row.genes.0[3] == 0)
    );
    assert_eq!(
        shown(table, "\"latency (ms)\" < 0.3", ""),
        matching(table, |row| row.known["latency (ms)"] < 0.3)
    );
    assert_eq!(shown(table, "error ~ \"MEMORY, \"", ""), [5]);
    assert_eq!(
        shown(table, "parents ~ 't2 '", ""),
        matching(table, |row| row.parents.iter().any(|p| p.0 == 2))
    );
    assert_eq!(shown(table, "accuracy = high", ""), [0_u64; 0], "a number is no word");
}

#[test]
fn orders_put_trials_without_a_value_last() {
    let table = &table(&events());
    let sorted = shown(table, "", "-accuracy,trial");
    assert_eq!(*sorted.last().unwrap(), 5);
    let accuracy = |trial: u64| table.rows().nth(trial as usize - 1).unwrap().value("accuracy");
    assert!(sorted[..29].is_sorted_by(|a, b| accuracy(*a) >= accuracy(*b)));
    assert_eq!(*shown(table, "", "accuracy").last().unwrap(), 5);
    assert_eq!(shown(table, "", "-trial")[0], 30);
    assert_eq!(shown(table, "state=completed", "node,-trial").len(), 5);
}

#[test]
fn what_cannot_be_understood_is_named() {
    let table = &table(&events());
    let error = |filter: &str| match Filter::parse(filter) {
        Err(error) => error,
        Ok(filter) => select(table, &filter, &[]).unwrap_err(),
    };
    assert_eq!(error("acuracy > 1").hint(), "did you mean `accuracy`?");
    assert_eq!(error("state = runing").hint(), "did you mean `running`?");
    for text in [
        "state",
        "= 3",
        "accuracy >",
        "accuracy > 1 or state = failed",
        "a = 1 and",
        "a = 1 b = 2",
        "and",
        ">",
    ] {
        assert!(matches!(error(text), FilterError::NotAComparison { .. }), "{text}");
    }
    assert!(matches!(error("node = \"n1"), FilterError::Unclosed { quote: '"', .. }));
    let unknown = select(table, &Filter::default(), &SortKey::parse_all("-zebra stripes")).unwrap_err();
    assert!(unknown.hint().contains("archid"), "{unknown}");
}
