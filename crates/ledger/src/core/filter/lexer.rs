//! Words, numbers, quoted texts and signs of a filter.

use super::Operator;
use super::error::{FilterError, FilterProblem};

/// Longer filters are refused.
pub(super) const MOST_CHARS: usize = 16_384;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name, a bare value or a word such as `and`.
    Word(String),
    Quoted(String),
    Number(f64),
    Operator(Operator),
    Open,
    Close,
}

impl Token {
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Word(word) => word.clone(),
            Token::Quoted(text) => format!("\"{text}\""),
            Token::Number(number) => number.to_string(),
            Token::Open => "(".to_owned(),
            Token::Close => ")".to_owned(),
            Token::Operator(operator) => operator.sign().to_owned(),
        }
    }
}

impl Operator {
    fn sign(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::AtMost => "<=",
            Operator::Greater => ">",
            Operator::AtLeast => ">=",
            Operator::Contains => "~",
            Operator::Lacks => "!~",
        }
    }
}

/// A token and where it begins, in characters.
pub(super) type Placed = (Token, usize);

pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, FilterError> {
    let chars: Vec<char> = text.chars().collect();
    let fail = |position: usize, problem| FilterError { text: text.to_owned(), position, problem };
    if chars.len() > MOST_CHARS {
        let shown = chars.iter().take(40).collect::<String>() + "…";
        let problem = FilterProblem::TooLong { limit: MOST_CHARS };
        return Err(FilterError { text: shown, position: MOST_CHARS, problem });
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let begin = at;
        let token = match c {
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            '(' => single(&mut at, Token::Open),
            ')' => single(&mut at, Token::Close),
            '"' | '\'' | '`' => {
                let text = quoted(&chars, &mut at);
                Token::Quoted(text.ok_or_else(|| fail(begin, FilterProblem::Unclosed { quote: c }))?)
            }
            '=' | '!' | '<' | '>' | '~' => {
                let next = chars.get(at + 1).copied();
                let (operator, len) = operator(c, next).ok_or_else(|| {
                    fail(begin, FilterProblem::Unexpected { found: c.to_string(), expected: "a comparison" })
                })?;
                at += len;
                Token::Operator(operator)
            }
            c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => {
                // Dates begin with digits, too.
                let word = take_while(&chars, &mut at, is_word);
                word.parse().map_or(Token::Word(word), Token::Number)
            }
            c if is_word(c) => Token::Word(take_while(&chars, &mut at, is_word)),
            other => {
                let problem =
                    FilterProblem::Unexpected { found: other.to_string(), expected: "a name or a value" };
                return Err(fail(begin, problem));
            }
        };
        found.push((token, begin));
    }
    Ok(found)
}

fn single(at: &mut usize, token: Token) -> Token {
    *at += 1;
    token
}

/// Characters of names: what metrics and keys of TOML have, and separators that people use in metrics.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | ':' | '@' | '%')
}

fn take_while(chars: &[char], at: &mut usize, fits: impl Fn(char) -> bool) -> String {
    let word: String = chars[*at..].iter().copied().take_while(|c| fits(*c)).collect();
    *at += word.chars().count();
    word
}

/// The text between two quotes; a backslash before a quote or a backslash takes away its meaning.
fn quoted(chars: &[char], at: &mut usize) -> Option<String> {
    let quote = *chars.get(*at)?;
    let mut text = String::new();
    let mut next = *at + 1;
    loop {
        match *chars.get(next)? {
            '\\' if chars.get(next + 1).is_some_and(|c| *c == quote || *c == '\\') => {
                text.push(*chars.get(next + 1)?);
                next += 2;
            }
            c if c == quote => {
                *at = next + 1;
                return Some(text);
            }
            c => {
                text.push(c);
                next += 1;
            }
        }
    }
}

/// The comparison that begins with this character, and how many characters it has.
fn operator(c: char, next: Option<char>) -> Option<(Operator, usize)> {
    Some(match (c, next) {
        ('=', Some('=')) => (Operator::Equal, 2),
        ('=', _) => (Operator::Equal, 1),
        ('!', Some('=')) | ('<', Some('>')) => (Operator::NotEqual, 2),
        ('!', Some('~')) => (Operator::Lacks, 2),
        ('<', Some('=')) => (Operator::AtMost, 2),
        ('<', _) => (Operator::Less, 1),
        ('>', Some('=')) => (Operator::AtLeast, 2),
        ('>', _) => (Operator::Greater, 1),
        ('~', _) => (Operator::Contains, 1),
        _ => return None,
    })
}
