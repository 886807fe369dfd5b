//! A table that was taken apart, written as JSON and put together again.

use crate::synthetic::{about, events, table};
use phalanx_search_results::{SearchTable, TableState, TrialRow};

#[test]
fn a_table_is_its_parts_after_any_record() {
    let events = events();
    for taken in 0..=events.len() {
        let whole = table(&events[..taken]);
        let state = serde_json::to_string(&whole.state()).unwrap();
        let state: TableState = serde_json::from_str(&state).unwrap();
        let rows = whole.rows().map(|row| serde_json::to_string(row).unwrap());
        let mut rows: Vec<TrialRow> = rows.map(|row| serde_json::from_str(&row).unwrap()).collect();
        rows.reverse();
        let again = SearchTable::of_parts(about(), state, rows);
        assert_eq!(again, whole, "after {taken} records");
        assert_eq!(again.front().trials, whole.front().trials);
    }
}
