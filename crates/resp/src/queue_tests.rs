use super::*;

fn encoded(reply: Reply, version: Version) -> String {
    let mut queue = ReplyQueue::default();
    queue.push(reply, version);
    String::from_utf8(queue.copy_to_bytes(queue.remaining()).to_vec()).unwrap()
}

#[test]
fn every_kind_of_reply_is_encoded_for_both_versions() {
    let pair = || vec![(Reply::bulk("a"), Reply::Integer(-10))];
    for (reply, resp2, resp3) in [
        (Reply::OK, "+OK\r\n", "+OK\r\n"),
        (Reply::error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
        (Reply::Integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
        (Reply::count(0), ":0\r\n", ":0\r\n"),
        (Reply::bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
        (Reply::Null, "$-1\r\n", "_\r\n"),
        (Reply::NullArray, "*-1\r\n", "_\r\n"),
        (Reply::Array(vec![Reply::Array(vec![]), Reply::Null]), "*2\r\n*0\r\n$-1\r\n", "*2\r\n*0\r\n_\r\n"),
        (Reply::Map(pair()), "*2\r\n$1\r\na\r\n:-10\r\n", "%1\r\n$1\r\na\r\n:-10\r\n"),
        (Reply::Set(vec![Reply::Integer(7)]), "*1\r\n:7\r\n", "~1\r\n:7\r\n"),
        (Reply::Push(vec![Reply::Integer(7)]), "*1\r\n:7\r\n", ">1\r\n:7\r\n"),
        (Reply::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (Reply::Double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
        (Reply::Bool(true), ":1\r\n", "#t\r\n"),
        (Reply::BigNumber("123".into()), "$3\r\n123\r\n", "(123\r\n"),
        (Reply::Verbatim("hi".into()), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
    ] {
        assert_eq!(encoded(reply.clone(), Version::Resp2), resp2, "{reply:?}");
        assert_eq!(encoded(reply.clone(), Version::Resp3), resp3, "{reply:?}");
    }
}

#[test]
fn a_large_value_is_sent_from_where_it_lies() {
    let value = Bytes::from(vec![9u8; REFERENCED]);
    let mut queue = ReplyQueue::default();
    queue.push(Reply::OK, Version::Resp2);
    queue.push(Reply::Array(vec![Reply::Bulk(value.clone()), Reply::Integer(1)]), Version::Resp2);
    let mut slices = [IoSlice::new(&[]); 8];
    let filled = queue.chunks_vectored(&mut slices);
    let lens: Vec<_> = slices[..filled].iter().map(|slice| slice.len()).collect();
    assert_eq!(lens, [5 + 4 + 8, REFERENCED, 2 + 4]);
    assert_eq!(slices[1].as_ptr(), value.as_ptr());
    assert_eq!(queue.remaining(), lens.iter().sum::<usize>());
}

#[test]
fn what_was_sent_is_forgotten_piece_by_piece() {
    let mut queue = ReplyQueue::default();
    for byte in 0..3u8 {
        queue.push(Reply::Bulk(vec![byte; REFERENCED].into()), Version::Resp2);
        queue.push_encoded(b"+PONG\r\n");
    }
    let mut whole = Vec::new();
    for step in (1..).step_by(977) {
        if queue.remaining() == 0 {
            break;
        }
        let n = step.min(queue.chunk().len());
        whole.extend_from_slice(&queue.chunk()[..n]);
        queue.advance(n);
    }
    let one = |byte: u8| [b"$16384\r\n", &[byte; REFERENCED][..], b"\r\n+PONG\r\n"].concat();
    assert_eq!(whole, [one(0), one(1), one(2)].concat());
}
