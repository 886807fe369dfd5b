//! Texts with names in them: `"$name"`, `"$name * 2"`, `"data-${name}.npz"`.

/// A text that was read; names are numbers of genes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Written {
    /// No name is in it.
    Plain(String),
    /// The value itself, whatever it is.
    Gene(usize),
    /// Whole numbers.
    Sum(Sum),
    /// Labels inserted into a text.
    Inserted(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text(String),
    Gene(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sum {
    Number(i64),
    Gene(usize),
    Of(Box<Sum>, char, Box<Sum>),
}

/// The deepest nesting of parentheses.
const DEEPEST: usize = 32;
/// The longest expression.
const LONGEST: usize = 500;

const UNFINISHED: &str = "it ends where a number or a $name is expected";
const NOT_CLOSED: &str = "a `(` is not closed";
const NOT_A_NAME: &str = "a `$` must be followed by a name; write $$ for a dollar sign";
const FOREIGN: &str = "arithmetic has whole numbers, names with a `$`, + - * / and ( ); to insert a name into a text, write ${name}";

/// Why a text cannot be read: its own form, or a name that is unknown.
#[derive(Debug)]
pub(super) enum Unreadable<E> {
    Form(&'static str),
    Name(E),
}

/// `find` answers which gene a name is.
pub(super) fn read<E>(
    text: &str,
    find: &mut dyn FnMut(&str) -> Result<usize, E>,
) -> Result<Written, Unreadable<E>> {
    let without_dollars = text.replace("$$", "");
    if !without_dollars.contains('$') {
        return Ok(Written::Plain(text.replace("$$", "$")));
    }
    if text.contains("${") {
        return inserted(text, find).map(Written::Inserted);
    }
    if text.len() > LONGEST {
        return Err(Unreadable::Form("it is too long"));
    }
    let mut reader = Reader { rest: text, depth: 0, find };
    let sum = reader.sum()?;
    match (reader.peek(), sum) {
        (Some(_), _) => Err(Unreadable::Form(FOREIGN)),
        (None, Sum::Gene(gene)) => Ok(Written::Gene(gene)),
        (None, sum) => Ok(Written::Sum(sum)),
    }
}

fn inserted<E>(
    text: &str,
    find: &mut dyn FnMut(&str) -> Result<usize, E>,
) -> Result<Vec<Part>, Unreadable<E>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        parts.push(Part::Text(rest[..at].to_owned()));
        let after = &rest[at + 1..];
        rest = if let Some(literal) = after.strip_prefix('$') {
            parts.push(Part::Text("$".to_owned()));
            literal
        } else {
            let named = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            let (name, behind) =
                named.filter(|(name, _)| is_name(name)).ok_or(Unreadable::Form(NOT_A_NAME))?;
            parts.push(Part::Gene(find(name).map_err(Unreadable::Name)?));
            behind
        };
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// Letters, digits and `_`, beginning with no digit.
pub(super) fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit()) && !text.is_empty() && text.chars().all(is_name_char)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

struct Reader<'a, E> {
    rest: &'a str,
    depth: usize,
    find: &'a mut dyn FnMut(&str) -> Result<usize, E>,
}

impl<E> Reader<'_, E> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn sum(&mut self) -> Result<Sum, Unreadable<E>> {
        let mut sum = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.rest = &self.rest[1..];
            sum = Sum::Of(Box::new(sum), sign, Box::new(self.product()?));
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<Sum, Unreadable<E>> {
        let mut product = self.operand()?;
        while let Some(sign @ ('*' | '/')) = self.peek() {
            self.rest = &self.rest[1..];
            product = Sum::Of(Box::new(product), sign, Box::new(self.operand()?));
        }
        Ok(product)
    }

    fn operand(&mut self) -> Result<Sum, Unreadable<E>> {
        match self.peek() {
            None => Err(Unreadable::Form(UNFINISHED)),
            Some('$') => {
                self.rest = &self.rest[1..];
                let name = self.take(is_name_char).to_owned();
                if !is_name(&name) {
                    return Err(Unreadable::Form(NOT_A_NAME));
                }
                (self.find)(&name).map(Sum::Gene).map_err(Unreadable::Name)
            }
            Some('(') => {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(Unreadable::Form("its parentheses are nested too deeply"));
                }
                self.rest = &self.rest[1..];
                let inner = self.sum()?;
                if self.peek() != Some(')') {
                    return Err(Unreadable::Form(NOT_CLOSED));
                }
                self.rest = &self.rest[1..];
                self.depth -= 1;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.take(|c| c.is_ascii_digit());
                digits
                    .parse()
                    .map(Sum::Number)
                    .map_err(|_too_large| Unreadable::Form("a number is too large"))
            }
            Some(_) => Err(Unreadable::Form(FOREIGN)),
        }
    }
}

impl Written {
    pub(super) fn genes(&self) -> Vec<usize> {
        match self {
            Written::Plain(_) => Vec::new(),
            Written::Gene(gene) => vec![*gene],
            Written::Sum(sum) => sum.genes(),
            Written::Inserted(parts) => {
                let gene = |part: &Part| if let Part::Gene(gene) = part { Some(*gene) } else { None };
                parts.iter().filter_map(gene).collect()
            }
        }
    }
}

impl Sum {
    fn genes(&self) -> Vec<usize> {
        match self {
            Sum::Number(_) => Vec::new(),
            Sum::Gene(gene) => vec![*gene],
            Sum::Of(left, _, right) => [left.genes(), right.genes()].concat(),
        }
    }

    /// `value` answers the whole number of a gene, or why it is none.
    pub(super) fn compute(&self, value: &dyn Fn(usize) -> Result<i64, String>) -> Result<i64, String> {
        match self {
            Sum::Number(number) => Ok(*number),
            Sum::Gene(gene) => value(*gene),
            Sum::Of(left, sign, right) => {
                let (left, right) = (left.compute(value)?, right.compute(value)?);
                let computed = match sign {
                    '+' => left.checked_add(right),
                    '-' => left.checked_sub(right),
                    '*' => left.checked_mul(right),
                    _ if right == 0 || left.checked_rem(right) != Some(0) => {
                        return Err(format!("{left} / {right} is not a whole number"));
                    }
                    _ => left.checked_div(right),
                };
                computed.ok_or_else(|| format!("{left} {sign} {right} is too large"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Written, String> {
        let mut find = |name: &str| match name {
            "a" => Ok(0),
            "b_2" => Ok(1),
            other => Err(format!("unknown {other}")),
        };
        read(text, &mut find).map_err(|why| match why {
            Unreadable::Form(why) => why.to_owned(),
            Unreadable::Name(why) => why,
        })
    }

    fn computed(text: &str) -> Result<i64, String> {
        let Written::Sum(sum) = of(text)? else { panic!("{text} is not arithmetic") };
        sum.compute(&|gene| [Ok(6), Ok(4)][gene].clone())
    }

    #[test]
    fn arithmetic_follows_the_usual_order_and_is_exact() {
        for (text, expected) in [
            ("$a * 2", 12),
            ("1 + $a*$b_2", 25),
            ("(1 + $a) * $b_2", 28),
            ("$a - $b_2 - 1", 1),
            ("24/$a/$b_2", 1),
            ("($a)*1", 6),
        ] {
            assert_eq!(computed(text), Ok(expected), "{text}");
        }
        assert_eq!(computed("$a / $b_2"), Err("6 / 4 is not a whole number".to_owned()));
        assert_eq!(computed("$a / ($b_2 - 4)"), Err("6 / 0 is not a whole number".to_owned()));
        let large = "$a * 9223372036854775807";
        assert_eq!(computed(large), Err("6 * 9223372036854775807 is too large".to_owned()));
    }

    #[test]
    fn names_stand_alone_or_in_a_text() {
        assert_eq!(of("$b_2"), Ok(Written::Gene(1)));
        assert_eq!(of(" ($a) "), Ok(Written::Gene(0)));
        assert_eq!(of("plain - text"), Ok(Written::Plain("plain - text".to_owned())));
        assert_eq!(of("$$HOME"), Ok(Written::Plain("$HOME".to_owned())));
        let text = |text: &str| Part::Text(text.to_owned());
        let parts = vec![text("x-"), Part::Gene(0), text(""), text("$"), text("y")];
        assert_eq!(of("x-${a}$$y"), Ok(Written::Inserted(parts)));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, why) in [
            ("$a +", UNFINISHED),
            ("($a", NOT_CLOSED),
            ("$", NOT_A_NAME),
            ("${a", NOT_A_NAME),
            ("${a} $b", NOT_A_NAME),
            ("$a % 2", FOREIGN),
            ("$a 2", FOREIGN),
            ("2.5 * $a", FOREIGN),
            ("$c", "unknown c"),
            ("${c}", "unknown c"),
            ("$a * 99999999999999999999", "a number is too large"),
        ] {
            assert_eq!(of(text), Err(why.to_owned()), "{text}");
        }
        assert_eq!(
            of(&format!("{}$a", "(".repeat(40))),
            Err("its parentheses are nested too deeply".to_owned())
        );
        assert_eq!(of(&format!("$a{}", " + 1".repeat(200))), Err("it is too long".to_owned()));
    }
}
