//! Lists of datasets whose keys other nodes of a shared store have.

use super::super::shards::{ShardMap, ShardPlace};
use super::*;
use phalanx_streams::StreamWait;
use phalanx_types::DType;

const GROW: &str = r#"{"mode":{"Grow":{"min_samples":1,"new_samples":0}},"seed":1,"batch":2,"partial":"Keep","passes":null}"#;
const ONCE: &str = r#"{"mode":{"Once":{"window":2}},"seed":1,"batch":2,"partial":"Keep","passes":null}"#;

/// The first of two nodes, which has the stream `b`.
fn node(reader: &str) -> Fixture {
    let mut f = Fixture::new();
    f.store.set_shards(ShardMap::new(ShardPlace::new(1, 2).unwrap(), "me"));
    f.run(&format!("PHALANX.STREAM READER b r 1 {reader} - -"));
    f
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn describe(base: &str) -> NodeRequest {
    NodeRequest::Describe { stream: bytes("b"), base: bytes(base), part: 2 }
}

fn tensor() -> FoundTensor {
    FoundTensor::new("x", DType::I32, &[2, 1])
}

impl Fixture {
    fn described(&mut self, base: &str, tensors: Vec<FoundTensor>) {
        self.out.clear();
        self.store.on_described(self.now, &bytes("b"), &bytes(base), tensors, &mut self.out);
    }

    fn arrived(&self) -> u64 {
        self.store.stream_info(self.now, &bytes("b")).unwrap().stream.samples
    }

    fn list_wait(&self) -> Option<StreamWait> {
        self.store.stream_info(self.now, &bytes("b")).unwrap().list_wait
    }
}

#[test]
fn datasets_of_other_nodes_are_asked_for_once_and_count_in_the_order_of_the_list() {
    let mut f = node(GROW);
    f.run("RPUSH b {a}1 {b}1 {a}2");
    assert_eq!(f.out.requests, [describe("{a}1")]);
    f.run("RPUSH b {a}1 {b}1");
    assert_eq!(f.out.requests, []);
    f.run("AI.TENSORSET {b}1.x INT32 2 1 VALUES 3 4");
    let names = Bytes::from_static(b"\x07\x01\0\0\0\0\0\0\0x");
    let words = [bytes("HSET"), bytes("{b}1.meta"), bytes(".tensor_names"), names];
    let words: Vec<Bytes> = words.into_iter().chain([bytes(".COMPLETE"), bytes("1")]).collect();
    f.store.execute(f.now, ClientId(1), &words, &mut f.out);
    assert_eq!(f.arrived(), 0);
    f.described("{a}2", vec![tensor()]);
    assert_eq!((f.arrived(), &f.out.requests[..]), (0, &[][..]), "it was not asked for");
    f.described("{a}1", vec![tensor()]);
    assert_eq!((f.arrived(), &f.out.requests[..]), (4, &[describe("{a}2")][..]));
    assert!(!f.store.wants_description(&bytes("b"), &bytes("{a}1")));
    assert!(f.store.wants_description(&bytes("b"), &bytes("{a}2")));
    // Samples 0 and 1 are elsewhere: their places in the request, and their rows.
    let words = [bytes("PHALANX.STREAM"), bytes("GATHER"), bytes("b")];
    let asked: Vec<u8> = [1u64, 2, 0, 3].iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let words: Vec<Bytes> = words.into_iter().chain([asked.into(), bytes("x")]).collect();
    let outcome = f.store.execute(f.now, ClientId(1), &words, &mut f.out);
    let numbers = |numbers: &[u64]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let parts = [3i32, 4].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let expected = vec![
        Reply::simple("ROWS"),
        Reply::bulks([Bytes::from(parts)]),
        Reply::bulk("{a}1.x"),
        Reply::bulk(numbers(&[0, 2])),
        Reply::bulk(numbers(&[1, 0])),
    ];
    assert_eq!(outcome, Outcome::Reply(Reply::Array(expected)));
}

#[test]
fn a_dataset_of_a_node_that_cannot_be_asked_is_a_reason_to_wait() {
    let mut f = node(GROW);
    f.run("RPUSH b {a}1");
    assert_eq!(f.list_wait(), None, "it was asked for just now");
    let why = StreamWait::DatasetNode {
        dataset: "{a}1".to_owned(),
        part: "2/2".to_owned(),
        detail: "no node serves it".to_owned(),
    };
    let told = f.outcome(1, "PHALANX.STREAM PASS b r - 0 samples 1000");
    assert_eq!(told, Outcome::Blocked);
    f.out.clear();
    f.store.on_undescribed(f.now, &bytes("b"), &bytes("{a}1"), why.clone(), &mut f.out);
    assert_eq!(f.list_wait(), Some(why.clone()));
    let [(client, reply)] = &f.out.messages[..] else { panic!("{:?}", f.out.messages) };
    assert_eq!(*client, ClientId(1));
    assert!(shown(reply).starts_with("[WAIT \"dataset_node\" \"waiting: part 2/2"), "{}", shown(reply));
    f.out.clear();
    f.store.on_undescribed(f.now, &bytes("b"), &bytes("{a}1"), why, &mut f.out);
    assert_eq!(f.out.messages, []);
    f.described("{a}1", vec![tensor()]);
    assert_eq!((f.arrived(), f.list_wait()), (2, None));
}

#[test]
fn what_does_not_fit_is_left_out_and_what_was_used_is_deleted_where_it_is() {
    let mut f = node(ONCE);
    f.run("RPUSH b {a}1 {a}2 {a}3");
    f.described("{a}1", vec![tensor()]);
    f.described("{a}2", vec![FoundTensor::new("x", DType::F32, &[2, 1])]);
    assert_eq!((f.arrived(), &f.out.requests[..]), (2, &[describe("{a}3")][..]));
    f.described("{a}3", Vec::new());
    let reports: Vec<String> =
        f.store.stream_info(f.now, &bytes("b")).unwrap().reports.into_iter().map(|(_, text)| text).collect();
    assert_eq!(reports.iter().filter(|text| text.contains("is left out")).count(), 2, "{reports:?}");
    f.run("PHALANX.STREAM PASS b r - 0 - 0");
    f.run("PHALANX.STREAM COMMIT b r 1 0 1");
    let keys = vec![bytes("{a}1.x"), bytes("{a}1.meta")];
    assert_eq!(f.out.requests, [NodeRequest::Delete { part: 2, keys }]);
}
