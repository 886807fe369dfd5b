//! Orders and solutions that no honest peer sends.

use super::place::{Place, ended, order, shell, training};
use crate::{KIND, PROGRAM_KIND, TrialError, TrialOrder, TrialResult, TrialWork};
use bytes::{Bytes, BytesMut};
use phalanx_jobs::{JobSpec, Outcome};
use phalanx_testkit::digits_data;
use phalanx_types::{DType, Parcel, Tensor};
use phalanx_wire::codec;
use phalanx_wire::trial::{TrialFile, TrialSolution, TrialTask};

const BUDGET: [f64; 3] = [0.0, 0.1, 1.0];

fn encoded<T: serde::Serialize>(message: &T) -> Bytes {
    let mut bytes = BytesMut::new();
    codec::encode_into(message, &mut bytes).unwrap();
    bytes.freeze()
}

fn payload(order: TrialOrder) -> Parcel {
    Parcel::from_bytes(encoded(&TrialTask { order, files: Vec::new() }))
}

fn with_file(parcel: Parcel, name: &str, bytes: &'static [u8]) -> Parcel {
    let tensor = Tensor::new(DType::U8, vec![bytes.len() as u64], Bytes::from_static(bytes)).unwrap();
    parcel.with_tensor(name, tensor)
}

#[tokio::test]
async fn a_node_refuses_orders_that_it_cannot_trust_and_goes_on() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let work = || training(&digits_data());
    let file = TrialFile {
        key: "data.train.file".to_owned(),
        path: "/nowhere".to_owned(),
        bytes: 3,
        sha256: [7; 32],
    };
    let unknown = TrialTask { order: order(1, work(), BUDGET), files: vec![file] };
    let stream = TrialWork::Train { run: "[model]\n".to_owned(), model: None };
    let hostile = [
        (KIND, Parcel::from_bytes(&b"\xff\xff\xff\xff"[..])),
        (KIND, Parcel::default()),
        (KIND, payload(order(1, work(), [0.5, 0.1, 1.0]))),
        (KIND, payload(order(1, work(), [0.0, f64::NAN, 1.0]))),
        (KIND, payload(order(1, shell("true", &[]), BUDGET))),
        (PROGRAM_KIND, payload(order(1, work(), BUDGET))),
        (KIND, payload(order(1, stream, BUDGET))),
        (KIND, with_file(payload(order(1, work(), BUDGET)), "run/../../escaped", b"x")),
        (KIND, with_file(payload(order(1, work(), BUDGET)), "run//etc/escaped", b"x")),
        (KIND, with_file(payload(order(1, work(), BUDGET)), "run/state.json", b"{}")),
        (KIND, Parcel::from_bytes(encoded(&unknown))),
    ];
    for (at, (kind, payload)) in hostile.into_iter().enumerate() {
        let spec = JobSpec { max_attempts: 1, ..JobSpec::new(kind, payload) };
        let outcome = ended(place.main.submit(spec).await.unwrap()).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{at}: {outcome:?}");
    }
    place.solve(&order(2, work(), BUDGET), None).await;
}

#[tokio::test]
async fn orders_that_no_node_could_carry_out_are_not_submitted() {
    let place = Place::new().await;
    let work = training(&digits_data());
    let refused = async |order: TrialOrder| place.client.submit(&order, None, 0).await.unwrap_err();
    assert!(matches!(refused(order(1, work.clone(), [1.0, 1.0, 1.0])).await, TrialError::Order(_)));
    let TrialWork::Train { run, model } = work else { panic!() };
    let with = |run: String| TrialWork::Train { run, model: model.clone() };
    let several = with(format!("{run}[formation]\nreplicas = 2\n"));
    assert!(matches!(refused(order(1, several, BUDGET)).await, TrialError::Unsuitable { .. }));
    let wrong = with(run.replace("cross_entropy", "cross_entropie"));
    assert!(matches!(refused(order(1, wrong, BUDGET)).await, TrialError::Config(_)));
}

#[tokio::test]
async fn solutions_that_lead_out_of_the_run_directory_write_nothing() {
    let place = Place::new().await;
    let into = place.run_dir(1);
    let solution = TrialSolution { search: "s1".to_owned(), trial: 1, result: TrialResult::default() };
    let result = Parcel::from_bytes(encoded(&solution));
    for solution in [
        Parcel::from_bytes("nonsense"),
        with_file(result.clone(), "run/../escaped", b"x"),
        with_file(result.clone(), "weights", b"x"),
        with_file(result.clone(), "run/run.toml", b"no run file"),
        with_file(with_file(result.clone(), "run/a", b"x"), "run/a/b", b"x"),
    ] {
        place.client.take(&solution, &into).unwrap_err();
        assert!(!into.exists());
    }
    assert!(!place.run_dir(1).parent().unwrap().join("escaped").exists());
}

#[tokio::test]
async fn values_that_training_cannot_give_are_refused_with_what_there_is() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let order = |name: &str, work| TrialOrder { values: vec![name.to_owned()], ..order(1, work, BUDGET) };
    let failure = place.failure(&order("flavour", training(&digits_data()))).await;
    assert!(
        failure.contains("measures no flavour; there are") && failure.contains("valid.loss"),
        "{failure}"
    );
    let data = digits_data();
    let without = data.lines().next().unwrap();
    let failure = place.failure(&order("valid.accuracy", training(without))).await;
    assert!(failure.contains("has no validation"), "{failure}");
}
