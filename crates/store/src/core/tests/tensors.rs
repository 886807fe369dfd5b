use super::*;
use crate::core::ServerFacts;
use phalanx_types::{DType, Tensor};

#[test]
fn tensors_are_given_back_as_redisai_does() {
    Fixture::new().check(&[
        ("AI.TENSORSET t INT8 2 2 BLOB abcd", "OK"),
        ("AI.TENSORGET t META BLOB", "[\"dtype\" \"INT8\" \"shape\" [:2 :2] \"blob\" \"abcd\"]"),
        ("AI.TENSORGET t BLOB", "\"abcd\""),
        ("AI.TENSORGET t META", "[\"dtype\" \"INT8\" \"shape\" [:2 :2]]"),
        (
            "AI.TENSORGET t META VALUES",
            "[\"dtype\" \"INT8\" \"shape\" [:2 :2] \"values\" [:97 :98 :99 :100]]",
        ),
        ("AI.TENSORSET f FLOAT 2 VALUES 1 2.5", "OK"),
        ("AI.TENSORGET f VALUES", "[1 2.5]"),
        ("AI.TENSORSET z DOUBLE 1", "OK"),
        ("AI.TENSORGET z VALUES", "[0]"),
        (
            "AI.TENSORSET t INT8 3 BLOB abcd",
            "!ERR the number of bytes does not match the tensor's type and shape",
        ),
        ("AI.TENSORSET t INT8 2 VALUES 1", "!ERR the number of values does not match the tensor's shape"),
        ("AI.TENSORSET t INT8 1 VALUES 300", "!ERR invalid value"),
        ("AI.TENSORSET t INT8 0 BLOB a", "!ERR invalid or negative value found in tensor shape"),
        ("AI.TENSORSET t INT8 BLOB a", "!ERR invalid or negative value found in tensor shape"),
        (
            "AI.TENSORSET t INT8 9223372036854775807 9223372036854775807 BLOB a",
            "!ERR invalid or negative value found in tensor shape",
        ),
        ("AI.TENSORSET t NOTYPE 1 BLOB a", "!ERR invalid data type"),
        ("AI.TENSORGET none META BLOB", "!ERR tensor key is empty"),
        ("GET t", "!WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("TYPE t", "AI_TENSOR"),
    ]);
}

#[test]
fn models_and_scripts_are_kept() {
    Fixture::new().check(&[
        ("AI.CONFIG GET MODEL_CHUNK_SIZE", ":535822336"),
        ("AI.CONFIG MODEL_CHUNK_SIZE 0", "!ERR MODEL_CHUNK_SIZE must be between 1 and 2147483647"),
        ("AI.CONFIG MODEL_CHUNK_SIZE 10", "OK"),
        ("AI.CONFIG GET MODEL_CHUNK_SIZE", ":10"),
        ("AI.MODELSTORE m TF gpu TAG v1 BATCHSIZE 4 INPUTS 2 a b OUTPUTS 1 c BLOB ab cd", "OK"),
        ("AI.MODELGET m BLOB", "\"abcd\""),
        (
            "AI.MODELGET m META",
            "[\"backend\" \"TF\" \"device\" \"GPU\" \"tag\" \"v1\" \"batchsize\" :4 \"minbatchsize\" :0 \"inputs\" \
             [\"a\" \"b\"] \"outputs\" [\"c\"] \"minbatchtimeout\" :0]",
        ),
        ("AI.MODELSET old TF CPU INPUTS a b OUTPUTS c BLOB x", "OK"),
        ("AI.MODELGET old BLOB", "\"x\""),
        (
            "AI.INFO m RESETSTAT",
            "[\"key\" \"m\" \"type\" \"MODEL\" \"backend\" \"TF\" \"device\" \"GPU\" \"tag\" \"v1\" \"duration\" :0 \
             \"samples\" :0 \"calls\" :0 \"errors\" :0]",
        ),
        ("AI.MODELSTORE m NOPE CPU BLOB x", "!ERR unsupported backend"),
        ("AI.MODELSTORE m TF CPU INPUTS 9 a BLOB x", "!ERR syntax error"),
        (
            "AI.MODELEXECUTE m INPUTS 1 a OUTPUTS 1 b",
            "!ERR this store runs ONNX models, not those of TF; export the model to ONNX",
        ),
        ("AI.MODELDEL m", "OK"),
        ("AI.MODELDEL m", "!ERR model key is empty"),
        ("AI.SCRIPTSET s CPU SOURCE text", "OK"),
        ("AI.SCRIPTGET s SOURCE", "\"text\""),
        (
            "AI.SCRIPTRUN s f INPUTS a OUTPUTS b",
            "!ERR this store keeps scripts but does not run them; export the function to ONNX and store it as a model",
        ),
        ("AI.SCRIPTDEL s", "OK"),
    ]);
}

#[test]
fn a_model_is_run_outside_and_its_outputs_are_stored() {
    let facts = ServerFacts { runs_models: true, ..ServerFacts::default() };
    let mut f = Fixture::with(Settings { facts, ..Settings::default() });
    f.run("AI.MODELSTORE m ONNX CPU BLOB x");
    f.run("AI.TENSORSET in FLOAT 2 VALUES 1 2");
    assert_eq!(shown(&f.run("AI.MODELEXECUTE m INPUTS 1 none OUTPUTS 1 b")), "!ERR tensor key is empty");
    let outcome = f.outcome(1, "AI.MODELEXECUTE m INPUTS 1 in OUTPUTS 1 out TIMEOUT 60000000");
    let Outcome::Run(call) = outcome else { panic!("{outcome:?}") };
    assert_eq!((call.inputs.len(), &call.outputs[..], call.padding), (1, &[Bytes::from("out")][..], true));
    f.later(20);
    let output = Tensor::new(DType::I8, vec![1], "a".into()).unwrap();
    assert_eq!(f.store.finish(f.now, &call, Ok(vec![output]), &mut f.out), Reply::OK);
    let failed = f.store.finish(f.now, &call, Err("no".into()), &mut f.out);
    assert_eq!(shown(&failed), "!ERR running the model failed: no");
    let info = shown(&f.run("AI.INFO m"));
    assert!(info.ends_with("\"duration\" :40000 \"samples\" :2 \"calls\" :2 \"errors\" :1]"), "{info}");
    assert_eq!(shown(&f.run("AI.TENSORGET out BLOB")), "\"a\"");
    // A client that introduced itself wants the reply as it is.
    f.run("CLIENT SETINFO LIB-NAME redis-py");
    let outcome = f.outcome(1, "AI.MODELRUN m INPUTS in OUTPUTS out");
    assert!(matches!(outcome, Outcome::Run(call) if !call.padding));
}
