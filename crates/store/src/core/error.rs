use phalanx_resp::Reply;
use phalanx_streams::StreamRefusal;

/// Why a command was not carried out. The texts are those of Redis, which programs compare with.
///
/// No text repeats what the client sent, but for names of commands: keys are any bytes, and clients decode errors as
/// UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR value is not a valid float")]
    NotFloat,
    #[error("ERR hash value is not an integer")]
    HashNotInteger,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    #[error("ERR no such key")]
    NoKey,
    #[error("ERR index out of range")]
    IndexRange,
    #[error("ERR offset is out of range")]
    OffsetRange,
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    LongString,
    #[error("ERR source and destination objects are the same")]
    SameKey,
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    #[error("ERR unknown command '{name}', with args beginning with: {args}")]
    UnknownCommand { name: String, args: String },
    #[error("ERR unknown subcommand '{0}'. Try {1} HELP.")]
    UnknownSubcommand(String, String),
    #[error("ERR timeout is not a float or out of range")]
    TimeoutFloat,
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    #[error("ERR invalid cursor")]
    Cursor,
    #[error("ERR DB index is out of range")]
    Database,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("OOM {0}")]
    NoRoom(String),
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
    )]
    HelloNoAuth,
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
    )]
    NoPassword,
    #[error("NOPROTO unsupported protocol version")]
    NoProtocol,
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtocolVersion,
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    Subscribed(&'static str),
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    #[error("ERR No such client")]
    NoClient,
    #[error("ERR Unknown option or number of arguments for CONFIG SET")]
    ConfigUnknown,
    #[error("ERR CONFIG SET failed - this value cannot be used")]
    ConfigValue,
    #[error("ERR CONFIG SET failed - this parameter cannot be changed while the server runs")]
    ConfigFixed,
    #[error("ERR Invalid slot")]
    Slot,
    #[error("ERR there is no replica to wait for")]
    NoReplica,
    #[error("ERR tensor key is empty")]
    NoTensor,
    #[error("ERR model key is empty")]
    NoModel,
    #[error("ERR script key is empty")]
    NoScript,
    #[error("ERR no model or script is at this key")]
    NoModelOrScript,
    #[error("ERR invalid data type")]
    TensorType,
    #[error("ERR tensors of strings are not supported")]
    TensorStrings,
    #[error("ERR invalid or negative value found in tensor shape")]
    TensorShape,
    #[error("ERR the number of bytes does not match the tensor's type and shape")]
    TensorBytes,
    #[error("ERR the number of values does not match the tensor's shape")]
    TensorCount,
    #[error("ERR invalid value")]
    TensorValue,
    #[error("ERR unsupported backend")]
    Backend,
    #[error("ERR invalid DEVICE")]
    Device,
    #[error("ERR insufficient arguments, missing model BLOB")]
    NoBlob,
    #[error("ERR insufficient arguments, missing script SOURCE")]
    NoSource,
    #[error("ERR MODEL_CHUNK_SIZE must be between 1 and 2147483647")]
    ChunkSize,
    #[error("ERR this store keeps models but does not run them: it was started without a model runner")]
    NoRunner,
    #[error("ERR this store runs ONNX models, not those of {0}; export the model to ONNX")]
    NotRunnable(&'static str),
    #[error(
        "ERR this store keeps scripts but does not run them; export the function to ONNX and store it as a model"
    )]
    NoScripts,
    #[error("ERR the model gave another number of outputs than there are keys for")]
    OutputCount,
    #[error("ERR running the model failed: {0}")]
    Run(String),
    /// JSON first: our own client reads it; the words are for people.
    #[error("STREAMREFUSED {json} {0}", json = serde_json::to_string(&**.0).unwrap_or_default())]
    StreamRefused(Box<StreamRefusal>),
    #[error("ERR a stream has a name of 1 to 256 bytes of text")]
    StreamName,
    #[error("ERR in a store that several nodes share the name of a stream has no braces")]
    StreamBraces,
    #[error("ERR producers, readers and trainers have names of letters, digits, '-', '_' and '.'")]
    StreamClient,
    #[error("ERR settings of a stream or a reader, or a place in it, are no JSON that is known")]
    StreamJson,
    #[error(
        "ERR an upload has 1 to 64 different tensors with names of 1 to 256 bytes of text, none of them 'meta'"
    )]
    StreamFields,
    #[error("ERR samples are numbers of 8 bytes, at most 1048576 of them")]
    StreamSamples,
}

impl From<CommandError> for Reply {
    fn from(error: CommandError) -> Self {
        Reply::error(error.to_string())
    }
}
