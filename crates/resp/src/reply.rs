use bytes::Bytes;

/// A version of the protocol, which a client chooses with `HELLO`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The version every connection begins with.
    #[default]
    Resp2,
    /// Has maps, doubles, booleans and pushes.
    Resp3,
}

/// One reply of a server.
///
/// Large bulk strings are shared, never copied.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A short text without line ends, such as `OK`.
    Simple(Bytes),
    /// An error; the first word is its kind, such as `ERR`.
    Error(Bytes),
    /// A whole number.
    Integer(i64),
    /// Any bytes.
    Bulk(Bytes),
    /// No value.
    Null,
    /// No value where an array was asked for; the same as [`Reply::Null`] in RESP3.
    NullArray,
    /// Several replies.
    Array(Vec<Reply>),
    /// Pairs of names and values; in RESP2 an array of twice the length.
    Map(Vec<(Reply, Reply)>),
    /// Replies without order; in RESP2 an array.
    Set(Vec<Reply>),
    /// What the client did not ask for at this moment, such as a published message; in RESP2 an array.
    Push(Vec<Reply>),
    /// A number with a fraction; in RESP2 a bulk string.
    Double(f64),
    /// True or false; in RESP2 `1` or `0`.
    Bool(bool),
    /// An integer of any size, in decimal digits; in RESP2 a bulk string.
    BigNumber(Bytes),
    /// A text for people; in RESP2 a bulk string.
    Verbatim(Bytes),
}

impl Reply {
    /// `+OK`.
    pub const OK: Reply = Reply::Simple(Bytes::from_static(b"OK"));

    /// A simple string that is known beforehand.
    pub fn simple(text: &'static str) -> Self {
        Reply::Simple(Bytes::from_static(text.as_bytes()))
    }

    /// A bulk string of any bytes.
    pub fn bulk(data: impl Into<Bytes>) -> Self {
        Reply::Bulk(data.into())
    }

    /// An error. Line ends, which would break the protocol, become spaces.
    pub fn error(text: impl Into<String>) -> Self {
        let mut text = text.into().into_bytes();
        text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
        Reply::Error(text.into())
    }

    /// A number of things.
    pub fn count(n: usize) -> Self {
        Reply::Integer(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// A value, or null.
    pub fn optional(data: Option<Bytes>) -> Self {
        data.map_or(Reply::Null, Reply::Bulk)
    }

    /// An array of bulk strings.
    pub fn bulks(items: impl IntoIterator<Item = Bytes>) -> Self {
        Reply::Array(items.into_iter().map(Reply::Bulk).collect())
    }
}
