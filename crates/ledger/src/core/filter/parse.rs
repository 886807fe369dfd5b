//! Tokens to a typed tree.

use super::error::{FilterError, FilterProblem};
use super::lexer::{Placed, Token, tokens};
use super::{Column, Comparison, Filter, Literal, Operator, Values};

/// Deeper nesting is refused, so that a hostile filter cannot exhaust the stack.
const DEEPEST: usize = 64;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Placed>,
    next: usize,
    depth: usize,
}

pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let filter = parser.either()?;
    match parser.peek() {
        None => Ok(filter),
        Some(_) => Err(parser.unexpected("`and`, `or` or the end")),
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn position(&self) -> usize {
        self.tokens.get(self.next).map_or_else(|| self.text.chars().count(), |(_, at)| *at)
    }

    fn fail(&self, position: usize, problem: FilterProblem) -> FilterError {
        FilterError { text: self.text.to_owned(), position, problem }
    }

    fn unexpected(&self, expected: &'static str) -> FilterError {
        let problem = match self.peek() {
            Some(token) => FilterProblem::Unexpected { found: token.shown(), expected },
            None => FilterProblem::Ended { expected },
        };
        self.fail(self.position(), problem)
    }

    /// Takes this word, whatever its case.
    fn took(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word));
        self.next += usize::from(there);
        there
    }

    fn either(&mut self) -> Result<Filter, FilterError> {
        let mut parts = vec![self.all()?];
        while self.took("or") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::Any(parts) })
    }

    fn all(&mut self) -> Result<Filter, FilterError> {
        let mut parts = vec![self.unary()?];
        while self.took("and") {
            parts.push(self.unary()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::All(parts) })
    }

    fn unary(&mut self) -> Result<Filter, FilterError> {
        if self.depth == DEEPEST {
            return Err(self.fail(self.position(), FilterProblem::TooDeep { limit: DEEPEST }));
        }
        self.depth += 1;
        let filter = if self.took("not") {
            Filter::Not(Box::new(self.unary()?))
        } else if self.peek() == Some(&Token::Open) {
            self.next += 1;
            let inner = self.either()?;
            if self.peek() != Some(&Token::Close) {
                return Err(self.unexpected("`)`"));
            }
            self.next += 1;
            inner
        } else {
            Filter::Compare(self.comparison()?)
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn comparison(&mut self) -> Result<Comparison, FilterError> {
        let position = self.position();
        let column = self.column()?;
        let Some(Token::Operator(operator)) = self.peek() else {
            return Err(self.unexpected("a comparison such as `>` or `=`"));
        };
        let operator = *operator;
        self.next += 1;
        let at = self.position();
        let given = match self.peek() {
            Some(Token::Number(number)) => Literal::Number(*number),
            Some(Token::Quoted(text) | Token::Word(text)) => Literal::Text(text.clone()),
            _ => return Err(self.unexpected("a number or a text")),
        };
        self.next += 1;
        let value = fitting(&column, operator, given).map_err(|problem| self.fail(at, problem))?;
        Ok(Comparison { column, operator, value, position })
    }

    /// A name: words with points, or a text in quotes; `tag."any key"` has both.
    fn column(&mut self) -> Result<Column, FilterError> {
        let mut name = match self.peek() {
            Some(Token::Word(word)) if !is_reserved(word) => word.clone(),
            Some(Token::Quoted(text)) => text.clone(),
            _ => return Err(self.unexpected("the name of a column")),
        };
        self.next += 1;
        if name.ends_with('.') {
            let Some(Token::Quoted(rest)) = self.peek() else {
                return Err(self.unexpected("a name in quotes after the point"));
            };
            name.push_str(rest);
            self.next += 1;
        }
        Ok(Column::named(&name))
    }
}

fn is_reserved(word: &str) -> bool {
    ["and", "or", "not"].iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// The value as the column needs it.
fn fitting(column: &Column, operator: Operator, given: Literal) -> Result<Literal, FilterProblem> {
    let substring = matches!(operator, Operator::Contains | Operator::Lacks);
    let shown = |given: &Literal| match given {
        Literal::Number(number) => number.to_string(),
        Literal::Text(text) => text.clone(),
        Literal::Time(ms) => ms.to_string(),
    };
    match column.values() {
        Values::Number | Values::Time if substring => {
            Err(FilterProblem::NotText { column: column.to_string() })
        }
        Values::Number => match given {
            Literal::Number(_) => Ok(given),
            other => match shown(&other).parse() {
                Ok(number) => Ok(Literal::Number(number)),
                Err(_text) => {
                    Err(FilterProblem::NotANumber { column: column.to_string(), text: shown(&other) })
                }
            },
        },
        Values::Time => {
            let text = shown(&given);
            let time = time_ms(&text).map(Literal::Time);
            time.ok_or_else(|| FilterProblem::BadTime { column: column.to_string(), text })
        }
        Values::Text => Ok(Literal::Text(shown(&given))),
        Values::Either if substring => Ok(Literal::Text(shown(&given))),
        Values::Either => Ok(given),
    }
}

/// A date, or a date with a time, in UTC; what is left out is the beginning.
fn time_ms(text: &str) -> Option<i64> {
    const WHOLE: &str = "0000-01-01T00:00:00Z";
    let text = text.trim().trim_end_matches('Z').replace(' ', "T");
    let whole = match text.len() {
        len @ (4 | 7 | 10 | 13 | 16) if text.is_ascii() => format!("{text}{}", WHOLE.get(len..)?),
        _ => format!("{text}Z"),
    };
    let time = humantime::parse_rfc3339(&whole).ok()?;
    i64::try_from(
        time.duration_since(humantime::parse_rfc3339("1970-01-01T00:00:00Z").ok()?).ok()?.as_millis(),
    )
    .ok()
}
