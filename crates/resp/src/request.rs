use crate::line::{integer, line_end, number_line_end};
use crate::{BulkMemory, LARGE, LargeBulk, ProtocolError, inline};
use bytes::{Buf, Bytes, BytesMut};

/// Requests of up to this many short arguments are taken at once.
const FEW: usize = 16;
/// Digits of their lengths.
const DIGITS: usize = 5;

/// What a client may send in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most arguments.
    pub max_args: usize,
    /// The longest argument, in bytes.
    pub max_bulk: usize,
    /// The longest inline request, in bytes.
    pub max_inline: usize,
}

impl Limits {
    /// What a client may send before it has given a password.
    pub const UNAUTHENTICATED: Limits = Limits { max_args: 10, max_bulk: 16 << 10, max_inline: 64 << 10 };
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_args: 1 << 20, max_bulk: 1 << 40, max_inline: 64 << 10 }
    }
}

/// How far a parser got with the bytes it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestProgress {
    /// A whole request has arrived; [`RequestParser::args`] has it until the next call.
    Request,
    /// More bytes are needed.
    More,
    /// A large argument of `len` bytes begins. Said once for each, before memory is taken: the caller may
    /// [refuse](RequestParser::refuse) it, and goes on parsing either way.
    Announced {
        /// The length of the argument.
        len: usize,
    },
    /// More bytes are needed, and they belong to [`RequestParser::large`].
    Large,
}

#[derive(Debug)]
enum State {
    /// Between requests.
    Idle,
    /// So many arguments are missing.
    Args(usize),
    /// A large argument is on its way, and so many are missing with it.
    Large(LargeBulk, usize),
    /// Bytes of an argument that was refused, with its line end.
    Skip { left: usize, args: usize },
}

/// Cuts the bytes of one client into requests.
///
/// ```
/// use bytes::BytesMut;
/// use phalanx_resp::{RequestParser, RequestProgress};
///
/// let mut input = BytesMut::from("*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
/// let mut parser = RequestParser::default();
/// assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Request));
/// assert_eq!(parser.args(), ["GET", "a"]);
/// assert_eq!(parser.parse(&mut input), Ok(RequestProgress::More));
/// ```
#[derive(Debug)]
pub struct RequestParser {
    limits: Limits,
    state: State,
    args: Vec<Bytes>,
    refused: bool,
    /// Whether `args` are those of a request that was already handed out.
    delivered: bool,
    /// How much of an inline request was already searched for its end.
    searched: usize,
}

impl Default for RequestParser {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl RequestParser {
    /// A parser at the beginning of a connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Idle, args: Vec::new(), refused: false, delivered: false, searched: 0 }
    }

    /// Changes what the client may send from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The arguments of the request that [`Self::parse`] announced last.
    pub fn args(&self) -> &[Bytes] {
        &self.args
    }

    /// Whether an argument of this request was refused; it is empty now.
    pub fn refused(&self) -> bool {
        self.refused
    }

    /// The large argument whose bytes come next.
    pub fn large(&mut self) -> Option<&mut LargeBulk> {
        match &mut self.state {
            State::Large(bulk, _) if bulk.missing() > 0 => Some(bulk),
            _ => None,
        }
    }

    /// Has the large argument that was announced read into this memory, which must be just as long.
    pub fn give(&mut self, memory: Box<dyn BulkMemory>) {
        if let State::Large(bulk, _) = &mut self.state {
            bulk.give(memory);
        }
    }

    /// Drops the bytes of the large argument that was announced. The request will say that it was refused.
    pub fn refuse(&mut self) {
        if let State::Large(bulk, args) = &self.state {
            self.refused = true;
            self.state = State::Skip { left: bulk.missing().saturating_add(2), args: *args };
        }
    }

    /// Takes bytes from `input` until there is something to say.
    ///
    /// # Errors
    /// The bytes are no request, or one beyond the limits.
    pub fn parse(&mut self, input: &mut BytesMut) -> Result<RequestProgress, ProtocolError> {
        if self.delivered {
            self.args.clear();
            self.refused = false;
            self.delivered = false;
        }
        loop {
            let progress = match &mut self.state {
                State::Idle => match self.take_whole(input) {
                    true => Some(RequestProgress::Request),
                    false => self.begin(input)?,
                },
                State::Args(0) => {
                    self.state = State::Idle;
                    self.delivered = true;
                    Some(RequestProgress::Request)
                }
                State::Args(missing) => {
                    let missing = *missing;
                    self.argument(missing, input)?
                }
                State::Large(bulk, missing) => {
                    bulk.take_from(input);
                    let missing = *missing;
                    if bulk.missing() > 0 {
                        Some(RequestProgress::Large)
                    } else if input.len() < 2 {
                        Some(RequestProgress::More)
                    } else {
                        let arg = bulk.finish();
                        self.finish_argument(arg, missing, input)?;
                        None
                    }
                }
                State::Skip { left, args } => {
                    let n = input.len().min(*left);
                    input.advance(n);
                    *left -= n;
                    if *left > 0 {
                        Some(RequestProgress::More)
                    } else {
                        let missing = args.saturating_sub(1);
                        self.args.push(Bytes::new());
                        self.state = State::Args(missing);
                        None
                    }
                }
            };
            if let Some(progress) = progress {
                return Ok(progress);
            }
        }
    }

    /// Takes a request of few and short arguments that is there as a whole; false for everything else.
    fn take_whole(&mut self, input: &mut BytesMut) -> bool {
        let mut places = [(0, 0); FEW];
        let Some((count, end)) = short_request(input, &self.limits, &mut places) else { return false };
        let request = input.split_to(end).freeze();
        self.args.extend(places.iter().take(count).map(|(start, end)| request.slice(*start..*end)));
        self.delivered = true;
        true
    }

    /// Reads the first line of a request.
    fn begin(&mut self, input: &mut BytesMut) -> Result<Option<RequestProgress>, ProtocolError> {
        let Some(first) = input.first() else { return Ok(Some(RequestProgress::More)) };
        if *first != b'*' {
            return self.inline(input);
        }
        let Some(end) = number_line_end(input)? else { return Ok(Some(RequestProgress::More)) };
        let count = integer(input.get(1..end).unwrap_or_default()).ok_or(ProtocolError::ArrayLength)?;
        input.advance(end + 2);
        // An empty array is no request and has no answer.
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else { return Ok(None) };
        if count > self.limits.max_args {
            return Err(self.too_much(ProtocolError::ArrayLength));
        }
        self.state = State::Args(count);
        Ok(None)
    }

    fn too_much(&self, usual: ProtocolError) -> ProtocolError {
        if self.limits == Limits::UNAUTHENTICATED { ProtocolError::Unauthenticated } else { usual }
    }

    fn inline(&mut self, input: &mut BytesMut) -> Result<Option<RequestProgress>, ProtocolError> {
        let Some(end) = input.iter().skip(self.searched).position(|byte| *byte == b'\n') else {
            self.searched = input.len();
            let long = self.searched > self.limits.max_inline;
            return if long { Err(ProtocolError::LongInline) } else { Ok(Some(RequestProgress::More)) };
        };
        let line = input.split_to(self.searched + end);
        input.advance(1);
        self.searched = 0;
        if line.len() > self.limits.max_inline {
            return Err(ProtocolError::LongInline);
        }
        inline::words(line.strip_suffix(b"\r").unwrap_or(&line), &mut self.args)?;
        if !self.args.is_empty() {
            self.state = State::Args(0);
        }
        Ok(None)
    }

    fn argument(
        &mut self,
        missing: usize,
        input: &mut BytesMut,
    ) -> Result<Option<RequestProgress>, ProtocolError> {
        match input.first() {
            None => return Ok(Some(RequestProgress::More)),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
        }
        let Some(end) = number_line_end(input)? else { return Ok(Some(RequestProgress::More)) };
        let len = integer(input.get(1..end).unwrap_or_default()).ok_or(ProtocolError::BulkLength)?;
        let len = usize::try_from(len).ok().ok_or(ProtocolError::BulkLength)?;
        if len > self.limits.max_bulk {
            return Err(self.too_much(ProtocolError::BulkLength));
        }
        if len >= LARGE {
            input.advance(end + 2);
            self.state = State::Large(LargeBulk::new(len), missing);
            return Ok(Some(RequestProgress::Announced { len }));
        }
        if input.len() < end + 2 + len + 2 {
            return Ok(Some(RequestProgress::More));
        }
        input.advance(end + 2);
        let arg = input.split_to(len).freeze();
        self.finish_argument(arg, missing, input)?;
        Ok(None)
    }

    /// Takes the line end after an argument.
    fn finish_argument(
        &mut self,
        arg: Bytes,
        missing: usize,
        input: &mut BytesMut,
    ) -> Result<(), ProtocolError> {
        if line_end(input.get(..2).unwrap_or_default(), 0) != Some(0) {
            return Err(ProtocolError::ExpectedLineEnd);
        }
        input.advance(2);
        self.args.push(arg);
        self.state = State::Args(missing.saturating_sub(1));
        Ok(())
    }
}

/// Where the arguments of a request of few and short ones are, how many, and where it ends. Says nothing of a request
/// that is wrong or not there as a whole.
fn short_request(input: &[u8], limits: &Limits, places: &mut [(usize, usize)]) -> Option<(usize, usize)> {
    let (count, mut at) = short_number(input, 0, b'*')?;
    if count == 0 || count > places.len() || count > limits.max_args {
        return None;
    }
    for place in places.iter_mut().take(count) {
        let (len, start) = short_number(input, at, b'$')?;
        if len >= LARGE || len > limits.max_bulk {
            return None;
        }
        let end = start + len;
        if input.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        *place = (start, end);
        at = end + 2;
    }
    Some((count, at))
}

/// A number of few digits on a line of this kind, and where the next line begins.
fn short_number(input: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let (first, rest) = input.get(at..)?.split_first()?;
    let digits = rest.iter().take(DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let usual = *first == kind && (1..=DIGITS).contains(&digits) && rest.get(digits..digits + 2)? == b"\r\n";
    let number = rest.iter().take(digits).fold(0, |number, digit| 10 * number + usize::from(digit - b'0'));
    // A number that begins with 0 is left to the code that knows what Redis says to it.
    (usual && (digits == 1 || rest.first() != Some(&b'0'))).then_some((number, at + 1 + digits + 2))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
