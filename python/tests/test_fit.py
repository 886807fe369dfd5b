"""Training of ONNX models on arrays: results, conversions and mistakes."""

import json
import logging
import threading

import numpy as np
import pytest

import phalanx
from conftest import make_model


def softmax_by_hand(x, y, steps, batch, lr, seed=0):
    """Cross-entropy and plain gradient descent on the model of `make_model`, in order and without shuffling."""
    from onnx import numpy_helper

    state = {t.name: numpy_helper.to_array(t).astype("float64") for t in make_model(seed=seed).graph.initializer}
    w, b, losses = state["fc.weight"], state["fc.bias"], []
    for step in range(steps):
        begin = step * batch % len(x)
        xb, yb = x[begin : begin + batch].astype("float64"), y[begin : begin + batch]
        logits = xb @ w.T + b
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses.append(-np.log(p[np.arange(len(yb)), yb]).mean())
        p[np.arange(len(yb)), yb] -= 1
        p /= len(yb)
        w, b = w - lr * p.T @ xb, b - lr * p.sum(axis=0)
    return np.array(losses), w, b


def test_losses_and_weights_are_those_of_the_same_training_by_hand(proto, data):
    x, y = data
    run = phalanx.fit(proto, data, optimizer="sgd", lr=0.5, batch=20, steps=30, shuffle=False)
    losses, w, b = softmax_by_hand(x, y, 30, 20, 0.5)
    np.testing.assert_allclose(run.metrics["loss"], losses, atol=1e-5)
    np.testing.assert_allclose(run.state_dict()["fc.weight"], w, atol=1e-5)
    np.testing.assert_allclose(run.state_dict()["fc.bias"], b, atol=1e-5)
    np.testing.assert_allclose(run.predict(x), x @ w.T + b, atol=1e-4)
    assert run.finished and run.steps == 30 and run.run_dir is None and run.model is proto


def test_a_path_bytes_and_a_message_are_the_same_model(proto, model_file, data):
    hashes = {
        phalanx.fit(model, data, epochs=2).params_hash
        for model in (proto, model_file, str(model_file), proto.SerializeToString())
    }
    assert len(hashes) == 1


def test_the_seed_decides_everything(proto, data):
    first, same, other = (phalanx.fit(proto, data, epochs=2, seed=seed).params_hash for seed in (1, 1, 2))
    assert first == same != other


def test_validation_and_metrics_are_arrays(proto, data):
    run = phalanx.fit(proto, data, valid=data, epochs=3, batch=20, metrics=["accuracy", {"name": "top_k", "k": 2}])
    assert run.metrics["step"].tolist() == list(range(1, 10))
    assert run.metrics["val_step"].tolist() == [3, 6, 9]
    assert run.metrics["loss"].dtype == np.float64
    found = run.evaluate(*data)
    assert found["samples"] == 60
    assert found["loss"] == pytest.approx(run.metrics["val_loss"][-1])
    assert found["accuracy"] == pytest.approx(run.metrics["val_acc"][-1])
    assert any(name.startswith("top") for name in found)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype("float64"),
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
        lambda x: x.tolist(),
        lambda x: np.ma.masked_array(x),
        lambda x: np.lib.stride_tricks.as_strided(x, x.shape, x.strides, writeable=False),
    ],
)
def test_any_layout_and_type_gives_the_same_bits(proto, data, change):
    x, y = data
    usual = phalanx.fit(proto, (x, y), epochs=2).params_hash
    assert phalanx.fit(proto, (change(x), y), epochs=2).params_hash == usual
    assert phalanx.fit(proto, (x, y.astype("uint8")), epochs=2).params_hash == usual


def test_arrays_in_one_piece_are_not_copied(proto, data):
    from phalanx import _arrays

    x, y = data
    assert np.shares_memory(_arrays.read((x, y), "train").x, x)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert phalanx.fit(proto, (read_only, y)).steps == 2


@pytest.mark.parametrize(
    "train, words",
    [
        ((np.zeros((0, 4), "f4"), np.zeros(0, "i8")), "no samples"),
        ((np.zeros((5, 4), "f4"), np.zeros(4, "i8")), "5 samples and 4 labels"),
        ((np.zeros((5, 4), object), np.zeros(5, "i8")), "type object"),
        ((np.zeros((5, 4), "c8"), np.zeros(5, "i8")), "type complex64"),
        ((np.array(["a"] * 5), np.zeros(5, "i8")), "type <U1"),
        ((np.zeros((5, 4), "f4"), None), "no labels"),
        ((np.float32(1), np.zeros(5, "i8")), "single number"),
        ((np.zeros((5, 7), "f4"), np.zeros(5, "i8")), r"shape \[7\]"),
        ((np.zeros((5, 4), "f4"), np.full(5, 9)), "9"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "cannot be made an array"),
        ((np.ma.masked_array(np.zeros((5, 4), "f4"), mask=True), np.zeros(5, "i8")), "masked"),
        (17, "two arrays, a dataset or a loader, not int"),
        (np.zeros((5, 4), "f4"), "two arrays"),
    ],
)
def test_data_that_cannot_be_used_are_named(proto, train, words):
    with pytest.raises(phalanx.InputError, match=words):
        phalanx.fit(proto, train)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"batch": 0}, "argument `batch`"),
        ({"lr": float("nan")}, "`lr` must be finite"),
        ({"optimizer": "adma"}, "did you mean `adam`"),
        ({"optimizer": {"name": "sgd", "momentun": 0.9}}, "momentun"),
        ({"optimizer": object()}, "`optimizer` cannot be object"),
        ({"loss": "mes"}, "did you mean `mse`"),
        ({"epochs": 1, "steps": 1}, "epochs"),
        ({"epochs": -1}, "argument `epochs`"),
        ({"settings": {"train.clip": 1}}, "unknown key `clip`"),
        ({"replicas": 2}, "need nodes"),
        ({"stages": "auto"}, "need nodes"),
        ({"local": 0}, "`local` must be at least 1"),
        ({"local": 2, "nodes": "lab"}, "both given"),
    ],
)
def test_settings_that_cannot_be_used_are_named(proto, data, arguments, words):
    with pytest.raises(phalanx.ConfigError, match=words) as caught:
        phalanx.fit(proto, data, **arguments)
    assert isinstance(caught.value, ValueError)
    assert caught.value.reason and str(caught.value).startswith(caught.value.reason)


@pytest.mark.parametrize(
    "model, words",
    [
        ("nowhere.onnx", "nowhere.onnx"),
        ("no-such-model", "no-such-model"),
        (b"not a model", "model"),
        (b"", "model"),
        (3.5, "a model cannot be float"),
    ],
)
def test_models_that_cannot_be_used_are_named(data, model, words):
    with pytest.raises(phalanx.InputError, match=words):
        phalanx.fit(model, data)


def test_an_operator_that_is_not_supported_is_named(data):
    from onnx import helper

    proto = make_model()
    proto.graph.node[0].output[0] = "hidden"
    proto.graph.node.append(helper.make_node("Det", ["hidden"], ["y"], name="odd"))
    with pytest.raises(phalanx.InputError, match="Det"):
        phalanx.fit(proto, data)


def test_integer_labels_are_numbers_for_losses_of_numbers(data):
    x, _ = data
    y = (x[:, 0] > 0).astype("int64")
    run = phalanx.fit(make_model(outputs=1), (x, y), loss="bce_with_logits", lr=0.1, epochs=30)
    assert run.metrics["loss"][-1] < run.metrics["loss"][0] / 2


def squares(output, target):
    difference = output - target
    return float((difference**2).mean()), 2 * difference / difference.size


def test_a_loss_of_ones_own_equals_the_named_one(data):
    x, _ = data
    train = (x, np.stack([x[:, 0], x[:, 1], x[:, 2] - x[:, 0]], axis=1))
    mine = phalanx.fit(make_model(), train, valid=train, loss=squares, lr=0.05, epochs=5)
    named = phalanx.fit(make_model(), train, valid=train, loss="mse", lr=0.05, epochs=5)
    np.testing.assert_allclose(mine.metrics["loss"], named.metrics["loss"], rtol=1e-4)
    np.testing.assert_allclose(mine.metrics["val_loss"], named.metrics["val_loss"], rtol=1e-4)
    assert mine.evaluate(*train)["loss"] == pytest.approx(named.evaluate(*train)["loss"], rel=1e-4)


def test_a_loss_sees_labels_as_they_were_given(proto, data):
    kinds = set()

    def look(output, target):
        kinds.add((output.dtype.str, output.shape[1:], target.dtype.str, target.shape[1:]))
        return 0.0, np.zeros_like(output)

    phalanx.fit(proto, data, loss=look)
    assert kinds == {("<f4", (3,), data[1].dtype.str, ())}


@pytest.mark.parametrize(
    "loss, words",
    [
        (lambda output, target: 1.0, "two values"),
        (lambda output, target: (1.0, output[:1]), "shape"),
        (lambda output, target: (1.0, "gradient"), "gradient"),
    ],
)
def test_a_loss_that_gives_something_else_is_told(proto, data, loss, words):
    with pytest.raises((phalanx.InputError, ValueError), match=words):
        phalanx.fit(proto, data, loss=loss)


def test_an_exception_in_a_loss_comes_back_as_it_is(proto, data):
    class Mine(Exception):
        pass

    def broken(output, target):
        raise Mine("as raised")

    with pytest.raises(Mine, match="as raised"):
        phalanx.fit(proto, data, loss=broken)
    # The library is not harmed by it.
    assert phalanx.fit(proto, data).steps == 2


def test_a_loss_may_call_the_library(proto, data):
    def nested(output, target):
        inner = phalanx.fit(make_model(), data, steps=1)
        return float(inner.metrics["loss"][0]), np.zeros_like(output)

    run = phalanx.fit(proto, data, loss=nested, steps=2)
    assert run.metrics["loss"][0] == run.metrics["loss"][1]


def test_a_loss_that_is_not_finite_ends_the_run(proto, data):
    with pytest.raises(phalanx.TrainingError) as caught:
        phalanx.fit(proto, data, loss=lambda output, target: (float("nan"), output * float("nan")))
    assert "panicked" not in str(caught.value)


def test_a_loss_of_ones_own_cannot_go_to_nodes_or_directories(proto, data, tmp_path):
    with pytest.raises(phalanx.InputError, match="squares"):
        phalanx.fit(proto, data, loss=squares, run_dir=tmp_path / "run")
    with pytest.raises(phalanx.InputError, match="squares"):
        phalanx.fit(proto, data, loss=squares, local=2)


def test_progress_is_told_to_a_function(proto, data):
    seen = []
    run = phalanx.fit(proto, data, valid=data, epochs=3, progress=seen.append)
    assert seen[-1]["step"] == seen[-1]["steps"] == run.steps
    assert seen[-1]["val_loss"] == pytest.approx(run.metrics["val_loss"][-1])


def test_an_exception_in_progress_ends_the_run(proto, data):
    def stop(now):
        raise StopIteration("enough")

    with pytest.raises(StopIteration):
        phalanx.fit(proto, data, epochs=100_000, progress=stop)


def test_progress_is_one_line(proto, data, capsys):
    phalanx.fit(proto, data, epochs=2, progress=True)
    told = capsys.readouterr().err
    assert "step 4/4" in told and told.endswith("\n") and told.count("\n") == 1
    phalanx.fit(proto, data, epochs=2)
    assert capsys.readouterr().err == ""


def test_logs_go_to_logging(proto, data, caplog):
    proto.graph.initializer[0].name = "fc.weight"
    with caplog.at_level(logging.DEBUG, logger="phalanx"):
        phalanx.fit(proto, data)
        phalanx.nodes("no-nodes-here", patience=0.05)
    names = {record.name for record in caplog.records}
    assert names and all(name.startswith("phalanx") for name in names)
    caplog.clear()
    with caplog.at_level(logging.CRITICAL, logger="phalanx"):
        phalanx.nodes("no-nodes-here", patience=0.05)
    assert not caplog.records


def test_threads_train_at_the_same_time(proto, data):
    hashes = []
    threads = [
        threading.Thread(target=lambda: hashes.append(phalanx.fit(proto, data, epochs=3).params_hash)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hashes) == 4 and len(set(hashes)) == 1


def test_settings_of_a_run_file_can_all_be_given(proto, data):
    run = phalanx.fit(proto, data, epochs=2, settings={"train.schedule": {"name": "step", "every": 2, "gamma": 0.5}})
    np.testing.assert_allclose(run.metrics["lr"], [1e-3, 1e-3, 5e-4, 5e-4], rtol=1e-6)


def test_predictions_need_samples_of_the_right_shape(proto, data):
    run = phalanx.fit(proto, data)
    assert run.predict(data[0][:1]).shape == (1, 3)
    for x, words in ((data[0][:0], "no samples"), (np.zeros((2, 5), "f4"), r"\[5\]"), ("x", "type")):
        with pytest.raises(phalanx.InputError, match=words):
            run.predict(x)
    with pytest.raises(phalanx.InputError, match="60 samples and 1 labels"):
        run.evaluate(data[0], data[1][:1])


def test_objects_that_lie_about_their_memory_are_refused(proto, data):
    from phalanx import _phalanx

    class Liar(np.ndarray):
        @property
        def __array_interface__(self):
            return {"data": (16, False), "shape": (1 << 20,), "typestr": "<f4", "version": 3, "strides": None}

    liar = data[0].view(Liar)
    run = phalanx.fit(proto, data)
    np.testing.assert_array_equal(run.predict(liar), run.predict(data[0]))
    for odd in (liar, bytearray(8), object(), data[0][:, ::2], data[0].astype("c8")):
        with pytest.raises(phalanx.InputError):
            run._native.predict(odd)
    assert _phalanx.version() == phalanx.__version__


def test_the_progress_of_a_run_is_json(proto, data):
    seen = []
    phalanx.fit(proto, data, progress=seen.append)
    assert json.loads(json.dumps(seen[-1]))["waiting"] is None


def test_labels_are_evaluated_as_they_were_trained(data):
    x, _ = data
    y = (x[:, 0] > 0).astype("int64")
    run = phalanx.fit(make_model(outputs=1), (x, y), valid=(x, y), loss="mse", epochs=3)
    assert run.evaluate(x, y)["loss"] == pytest.approx(run.metrics["val_loss"][-1])


def test_a_loss_may_evaluate_its_own_run(data):
    x, _ = data
    train = (x, x[:, :3])
    run, depth = None, 0

    def nested(output, target):
        nonlocal depth
        if run is not None and depth == 0:
            depth += 1
            try:
                run.evaluate(*train)
            finally:
                depth -= 1
        return squares(output, target)

    run = phalanx.fit(make_model(), train, loss=nested)
    loss = run.evaluate(*train)["loss"]
    assert np.isfinite(loss)
    losses = []
    threads = [threading.Thread(target=lambda: losses.append(run.evaluate(*train)["loss"])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses == [loss] * 3


def test_pairs_of_lists_and_lists_of_pairs_are_told_apart(proto, data):
    x, y = data[0][:2], data[1][:2]
    both = phalanx.fit(proto, (x, y)).params_hash
    assert phalanx.fit(proto, [x, y]).params_hash == both
    assert phalanx.fit(proto, [(x[0], y[0]), (x[1], y[1])]).params_hash == both
