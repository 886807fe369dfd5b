use super::*;
use crate::value::Value;

fn sql(text: &str) -> (String, Vec<Value>) {
    let mut statement = Statement::default();
    statement.filter(&Filter::parse(text).unwrap(), Dialect::Sqlite);
    (statement.sql, statement.values)
}

fn error(text: &str) -> String {
    Filter::parse(text).unwrap_err().to_string()
}

#[test]
fn names_mean_fields_metrics_parameters_and_tags() {
    let metric = |name: &str, of| Column::Metric { name: name.to_owned(), of };
    assert_eq!(Column::named("state"), Column::Field(Field::State));
    assert_eq!(Column::named("val_acc"), metric("val_acc", Aggregate::Last));
    assert_eq!(Column::named("best.val_acc"), metric("val_acc", Aggregate::Max));
    assert_eq!(Column::named("best.val_loss"), metric("val_loss", Aggregate::Min));
    assert_eq!(Column::named("min.lr"), metric("lr", Aggregate::Min));
    assert_eq!(Column::named("train.batch"), Column::Param("train.batch".to_owned()));
    assert_eq!(Column::named("param.seed"), Column::Param("seed".to_owned()));
    assert_eq!(Column::named("tag.owner"), Column::Tag("owner".to_owned()));
    assert_eq!(Column::named("metric.a.b"), metric("a.b", Aggregate::Last));
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let Filter::Any(parts) = Filter::parse("a > 1 or not b < 2 and c = 3").unwrap() else {
        panic!("not an or")
    };
    let Filter::All(all) = &parts[1] else { panic!("not an and") };
    assert!(matches!(&all[0], Filter::Not(_)) && all.len() == 2 && parts.len() == 2);
    let Filter::All(parts) = Filter::parse("(a > 1 or b < 2) and c = 3").unwrap() else {
        panic!("not an and")
    };
    assert!(matches!(&parts[0], Filter::Any(_)));
}

#[test]
fn only_constants_become_sql() {
    let hostile = "\"x'; drop table run; --\" > 0.97 and tag.\"a\\\"b\" ~ \"100%_\" and model != '\" or 1=1'";
    let (text, values) = sql(hostile);
    assert_eq!(
        text,
        "(exists (select 1 from series where series.run = run.id and series.name = $1 and series.last > $2) and \
         exists (select 1 from tag where tag.run = run.id and tag.name = $3 and instr(lower(tag.value), $4) > 0) and \
         coalesce(run.model <> $5, false))"
    );
    let bound = ["x'; drop table run; --", "a\"b", "100%_", "\" or 1=1"].map(Value::from);
    let [name, key, part, model] = bound;
    assert_eq!(values, [name, Value::Real(0.97), key, part, model]);
}

#[test]
fn values_are_what_their_columns_hold() {
    assert_eq!(sql("started >= 2026-11-01").1, [Value::Int(1_793_491_200_000)]);
    assert_eq!(sql("started < \"2026-11-01T12:30\"").1, [Value::Int(1_793_536_200_000)]);
    assert_eq!(sql("started > 2026").1, [Value::Int(1_767_225_600_000)]);
    assert_eq!(sql("state = finished").1, [Value::from("finished")]);
    assert_eq!(sql("name = 17").1, [Value::from("17")]);
    assert_eq!(sql("train.batch = 64").1, [Value::from("train.batch"), Value::Real(64.0)]);
    assert_eq!(sql("train.name = \"64\"").1, [Value::from("train.name"), Value::from("64")]);
    assert_eq!(sql("loss < 1e-3").1, [Value::from("loss"), Value::Real(1e-3)]);
}

#[test]
fn errors_say_where_and_what_was_expected() {
    assert_eq!(
        error("val_acc >"),
        "expected a number or a text, but the text ends at character 10 of `val_acc >`"
    );
    assert!(
        error("val_acc 3").starts_with("expected a comparison such as `>` or `=`, not `3` at character 9")
    );
    assert!(error("a > 1 b < 2").starts_with("expected `and`, `or` or the end, not `b` at character 7"));
    assert!(error("(a > 1").contains("expected `)`, but the text ends"));
    assert!(error("model = \"x").starts_with("the text after \" has no end at character 9"));
    assert!(error("val_acc > high").starts_with("`val_acc` is a number and cannot be compared with `high`"));
    assert!(error("started > tomorrow").starts_with("`started` is a time, and `tomorrow` is none"));
    assert!(error("loss ~ 3").contains("`~` compares text"));
    assert!(error("a ! 3").starts_with("expected a comparison, not `!` at character 3"));
    assert!(error("and > 3").starts_with("expected the name of a column, not `and`"));
    assert!(error("a > 1; b").starts_with("expected a name or a value, not `;`"));
    assert!(Filter::parse("loss ~ 3").unwrap_err().hint().is_none());
}

#[test]
fn hostile_filters_are_refused_and_cost_little() {
    assert!(error(&"(".repeat(1000)).starts_with("parentheses and `not` nest at most 64 deep"));
    assert!(error(&"not ".repeat(1000)).starts_with("parentheses and `not` nest at most 64 deep"));
    assert!(error(&"a".repeat(20_000)).contains("at most 16384 characters"));
    for text in ["\u{0}", "\u{202e} = 1", "=", "~", "''", "'' = ''", ". > 1", "tag. = 1", "🦀 = 1"] {
        let _understood_or_not = Filter::parse(text);
    }
}

#[test]
fn an_order_has_keys_with_directions() {
    let keys = parse_sort("-val_acc, started");
    assert_eq!((keys.len(), keys[0].descending, keys[1].descending, keys[1].position), (2, true, false, 9));
    let mut statement = Statement::default();
    statement.order(&keys);
    assert_eq!(
        statement.sql,
        " order by (select series.last from series where series.run = run.id and series.name = $1) desc nulls last, \
         run.started_ms asc nulls last, run.started_ms, run.name, run.id"
    );
}
