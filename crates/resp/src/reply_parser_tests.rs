use super::*;
use crate::{ReplyQueue, Version};

fn parse(input: &[u8]) -> Result<ReplyProgress, ProtocolError> {
    ReplyParser::default().parse(&mut BytesMut::from(input))
}

#[test]
fn what_a_server_encodes_a_client_reads() {
    let large = Reply::Bulk(vec![3; LARGE + 1].into());
    let map = Reply::Map(vec![(Reply::bulk("k"), large), (Reply::bulk("l"), Reply::Array(vec![]))]);
    let replies = [
        Reply::OK,
        Reply::error("ERR no"),
        Reply::Integer(-5),
        Reply::Null,
        Reply::Double(0.25),
        Reply::Bool(false),
        Reply::BigNumber("99".into()),
        Reply::Verbatim("text".into()),
        Reply::Push(vec![Reply::Set(vec![map]), Reply::bulk("x")]),
    ];
    let mut queue = ReplyQueue::default();
    for reply in &replies {
        queue.push(reply.clone(), Version::Resp3);
    }
    let mut parser = ReplyParser::default();
    let mut input = BytesMut::new();
    let mut read = Vec::new();
    while queue.remaining() > 0 {
        let n = queue.chunk().len().min(7);
        input.extend_from_slice(&queue.copy_to_bytes(n));
        while let ReplyProgress::Reply(reply) = parser.parse(&mut input).unwrap() {
            read.push(reply);
        }
    }
    assert_eq!(read, replies);
}

#[test]
fn nulls_of_the_old_version_and_attributes_are_read() {
    assert_eq!(parse(b"$-1\r\n"), Ok(ReplyProgress::Reply(Reply::Null)));
    assert_eq!(parse(b"*-1\r\n"), Ok(ReplyProgress::Reply(Reply::NullArray)));
    assert_eq!(parse(b"|1\r\n+a\r\n+b\r\n:7\r\n"), Ok(ReplyProgress::Reply(Reply::Integer(7))));
    assert_eq!(parse(b"!5\r\nERR x\r\n"), Ok(ReplyProgress::Reply(Reply::error("ERR x"))));
}

#[test]
fn an_announced_length_takes_no_memory() {
    assert_eq!(parse(b"%9223372036854775807\r\n*9223372036854775807\r\n"), Ok(ReplyProgress::More));
}

#[test]
fn each_kind_of_bad_reply_has_its_error() {
    let deep = [b'*', b'1', b'\r', b'\n'].repeat(MAX_DEPTH + 1);
    for (input, error) in [
        (&b"?\r\n"[..], ProtocolError::UnknownType(b'?')),
        (b":x\r\n", ProtocolError::BadValue),
        (b"#x\r\n", ProtocolError::BadValue),
        (b"*-2\r\n", ProtocolError::ArrayLength),
        (b"$-2\r\n", ProtocolError::BulkLength),
        (b"$1\r\nabc", ProtocolError::ExpectedLineEnd),
        (&deep, ProtocolError::TooDeep),
    ] {
        assert_eq!(parse(input), Err(error));
    }
}
