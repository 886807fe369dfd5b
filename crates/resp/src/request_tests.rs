use super::*;
use bytes::BufMut;

fn all(input: &[u8]) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
    let mut input = BytesMut::from(input);
    let mut parser = RequestParser::default();
    let mut requests = Vec::new();
    loop {
        match parser.parse(&mut input)? {
            RequestProgress::Request => requests.push(parser.args().to_vec()),
            RequestProgress::Announced { .. } => {}
            RequestProgress::More | RequestProgress::Large => return Ok(requests),
        }
    }
}

#[test]
fn arrays_and_inline_requests_may_alternate() {
    let input = b"PING\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n\r\n\nset a 'b c'\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
    let expected: Vec<Vec<&str>> =
        vec![vec!["PING"], vec!["ECHO", "\r\n"], vec!["set", "a", "b c"], vec![""]];
    assert_eq!(all(input).unwrap(), expected);
}

#[test]
fn each_kind_of_bad_request_has_its_error() {
    for (input, error) in [
        (&b"*x\r\n"[..], ProtocolError::ArrayLength),
        (b"*1048577\r\n", ProtocolError::ArrayLength),
        (b"*1\r\n:1\r\n", ProtocolError::ExpectedBulk(b':')),
        (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$1099511627777\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$1\r\nabc", ProtocolError::ExpectedLineEnd),
        (b"*11111111111111111111111111111111111111111\r\n", ProtocolError::LongLine),
        (b"set 'a\r\n", ProtocolError::Quotes),
        (&[b'a'; 70_000], ProtocolError::LongInline),
    ] {
        assert_eq!(all(input), Err(error));
    }
}

#[test]
fn a_client_without_password_may_send_little() {
    let mut parser = RequestParser::new(Limits::UNAUTHENTICATED);
    let many = parser.parse(&mut BytesMut::from("*11\r\n"));
    assert_eq!(many, Err(ProtocolError::Unauthenticated));
}

#[test]
fn a_large_argument_is_read_into_its_own_buffer() {
    let len = LARGE + 5;
    let mut parser = RequestParser::default();
    let mut input = BytesMut::from(format!("*2\r\n$1\r\nx\r\n${len}\r\nabc").as_bytes());
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Announced { len }));
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Large));
    let bulk = parser.large().unwrap();
    assert_eq!(bulk.missing(), len - 3);
    bulk.room().put_bytes(b'z', len - 3);
    assert_eq!(parser.large().map(|bulk| bulk.missing()), None);
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::More));
    input.extend_from_slice(b"\r\n");
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Request));
    assert_eq!(parser.args()[1], [b"abc", &[b'z'; LARGE + 2][..]].concat());
    assert!(!parser.refused());
}

#[test]
fn a_refused_argument_is_skipped_and_the_next_request_is_read() {
    let mut parser = RequestParser::default();
    let mut input = BytesMut::from(format!("*2\r\n$1\r\nx\r\n${LARGE}\r\n").as_bytes());
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Announced { len: LARGE }));
    parser.refuse();
    input.extend_from_slice(&[0; LARGE]);
    input.extend_from_slice(b"\r\nPING\r\n");
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Request));
    assert_eq!((parser.args(), parser.refused()), (&[Bytes::from("x"), Bytes::new()][..], true));
    assert_eq!(parser.parse(&mut input), Ok(RequestProgress::Request));
    assert_eq!((parser.args(), parser.refused()), (&[Bytes::from("PING")][..], false));
}
