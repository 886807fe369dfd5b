//! A filter as SQL. Only constants of this file become SQL text; values and names are bound.

use super::{Aggregate, Column, Comparison, Field, Filter, Literal, Operator, SortKey};
use crate::value::Value;

/// Where the two databases differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// SQL text with its parameters, numbered in the order in which they stand.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
}

impl Statement {
    pub(crate) fn new(sql: &'static str) -> Self {
        Self { sql: sql.to_owned(), values: Vec::new() }
    }

    pub(crate) fn push(&mut self, sql: &'static str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.sql.push('$');
        self.sql.push_str(&self.values.len().to_string());
        self
    }

    /// Adds the condition of a filter on the table `run`.
    pub(crate) fn filter(&mut self, filter: &Filter, dialect: Dialect) -> &mut Self {
        match filter {
            Filter::All(parts) => self.joined(parts, " and ", dialect),
            Filter::Any(parts) => self.joined(parts, " or ", dialect),
            Filter::Not(part) => {
                self.push("not (");
                self.filter(part, dialect).push(")")
            }
            Filter::Compare(comparison) => self.comparison(comparison, dialect),
        }
    }

    /// Adds the condition that a text of the run, or of one of its tags, has a word, whatever the case.
    pub(crate) fn has_word(&mut self, word: &str, dialect: Dialect) -> &mut Self {
        const HELD: [&str; 5] = ["run.name", "run.model", "run.state", "run.kind", "run.reason"];
        let find = if dialect == Dialect::Sqlite { "instr(lower(" } else { "strpos(lower(" };
        let word = word.to_lowercase();
        self.push("(");
        for held in HELD {
            self.push("coalesce(")
                .push(find)
                .push(held)
                .push("), ")
                .bind(word.clone())
                .push(") > 0, false) or ");
        }
        self.push("exists (select 1 from tag where tag.run = run.id and (");
        self.push(find).push("tag.name), ").bind(word.clone()).push(") > 0 or ");
        self.push(find).push("tag.value), ").bind(word).push(") > 0)))")
    }

    fn joined(&mut self, parts: &[Filter], between: &'static str, dialect: Dialect) -> &mut Self {
        self.push("(");
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.push(between);
            }
            self.filter(part, dialect);
        }
        self.push(")")
    }

    /// A comparison with a value that a run does not have is false.
    fn comparison(&mut self, comparison: &Comparison, dialect: Dialect) -> &mut Self {
        let Comparison { column, operator, value, .. } = comparison;
        match column {
            Column::Field(field) => {
                self.push("coalesce(");
                self.test(field.sql(), *operator, value, dialect).push(", false)")
            }
            Column::Metric { name, of } => {
                self.push("exists (select 1 from series where series.run = run.id and series.name = ");
                self.bind(name.clone()).push(" and ");
                self.test(of.sql(), *operator, value, dialect).push(")")
            }
            Column::Param(key) => {
                self.push("exists (select 1 from param where param.run = run.id and param.name = ");
                self.bind(key.clone()).push(" and ");
                let held = if matches!(value, Literal::Number(_)) { "param.num" } else { "param.value" };
                self.test(held, *operator, value, dialect).push(")")
            }
            Column::Tag(key) => {
                self.push("exists (select 1 from tag where tag.run = run.id and tag.name = ");
                self.bind(key.clone()).push(" and ");
                let held = if matches!(value, Literal::Number(_)) { "tag.num" } else { "tag.value" };
                self.test(held, *operator, value, dialect).push(")")
            }
        }
    }

    fn test(
        &mut self,
        held: &'static str,
        operator: Operator,
        value: &Literal,
        dialect: Dialect,
    ) -> &mut Self {
        let sign = match operator {
            Operator::Equal => " = ",
            Operator::NotEqual => " <> ",
            Operator::Less => " < ",
            Operator::AtMost => " <= ",
            Operator::Greater => " > ",
            Operator::AtLeast => " >= ",
            Operator::Contains => " > 0",
            Operator::Lacks => " = 0",
        };
        if matches!(operator, Operator::Contains | Operator::Lacks) {
            let text = match value {
                Literal::Text(text) => text.to_lowercase(),
                Literal::Number(number) => number.to_string(),
                Literal::Time(ms) => ms.to_string(),
            };
            self.push(if dialect == Dialect::Sqlite { "instr(lower(" } else { "strpos(lower(" });
            return self.push(held).push("), ").bind(text).push(")").push(sign);
        }
        self.push(held).push(sign);
        match value {
            Literal::Number(number) => self.bind(*number),
            Literal::Text(text) => self.bind(text.clone()),
            Literal::Time(ms) => self.bind(*ms),
        }
    }

    /// Adds an order; runs without a value come last.
    pub(crate) fn order(&mut self, keys: &[SortKey]) -> &mut Self {
        self.push(" order by ");
        for key in keys {
            match &key.column {
                Column::Field(field) => {
                    self.push(field.sql());
                }
                Column::Metric { name, of } => {
                    self.push("(select ").push(of.sql());
                    self.push(" from series where series.run = run.id and series.name = ");
                    self.bind(name.clone()).push(")");
                }
                Column::Param(name) => {
                    self.push("(select num from param where param.run = run.id and param.name = ");
                    self.bind(name.clone()).push(")").push(direction(key));
                    self.push("(select value from param where param.run = run.id and param.name = ");
                    self.bind(name.clone()).push(")");
                }
                Column::Tag(name) => {
                    self.push("(select num from tag where tag.run = run.id and tag.name = ");
                    self.bind(name.clone()).push(")").push(direction(key));
                    self.push("(select value from tag where tag.run = run.id and tag.name = ");
                    self.bind(name.clone()).push(")");
                }
            }
            self.push(direction(key));
        }
        // The order in which runs began is the order of everything that is equal otherwise.
        self.push("run.started_ms, run.name, run.id")
    }
}

fn direction(key: &SortKey) -> &'static str {
    if key.descending { " desc nulls last, " } else { " asc nulls last, " }
}

impl Field {
    fn sql(self) -> &'static str {
        match self {
            Field::Uid => "run.uid",
            Field::Name => "run.name",
            Field::Kind => "run.kind",
            Field::Experiment => "run.experiment",
            Field::State => "run.state",
            Field::Reason => "run.reason",
            Field::Waiting => "run.waiting",
            Field::Model => "run.model",
            Field::Host => "run.host",
            Field::Seed => "cast(run.seed as double precision)",
            Field::Steps => "cast(run.steps as double precision)",
            Field::TotalSteps => "cast(run.total_steps as double precision)",
            Field::Started => "run.started_ms",
            Field::Ended => "run.ended_ms",
            Field::Wall => "run.wall_s",
        }
    }
}

impl Aggregate {
    fn sql(self) -> &'static str {
        match self {
            Aggregate::Last => "series.last",
            Aggregate::Min => "series.least",
            Aggregate::Max => "series.most",
        }
    }
}
