/// Why bytes are not a request or a reply. The connection cannot go on after it.
///
/// The texts for requests are those that Redis sends after `ERR Protocol error: `.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not a number, or too large.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// The length of a bulk string is not a number, negative, or too large.
    #[error("invalid bulk length")]
    BulkLength,
    /// An argument does not begin with `$`.
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    ExpectedBulk(u8),
    /// The bytes after a bulk string are not a line end.
    #[error("expected a line end after a bulk string")]
    ExpectedLineEnd,
    /// A line that should hold a number or a type has no end.
    #[error("too big count string")]
    LongLine,
    /// An inline request is too long.
    #[error("too big inline request")]
    LongInline,
    /// An inline request has a quote without its pair.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A client may not send this much before it has authenticated.
    #[error("unauthenticated bulk or multibulk length")]
    Unauthenticated,
    /// A reply begins with a byte that is no type.
    #[error("unknown reply type '{}'", char::from(*.0).escape_default())]
    UnknownType(u8),
    /// A number, double or boolean of a reply cannot be read.
    #[error("bad value in a reply")]
    BadValue,
    /// A reply has arrays inside arrays, deeper than any server sends.
    #[error("reply nested too deeply")]
    TooDeep,
}
