"""Run directories: opening, going on, fusing, and what the command line makes of them."""

import json
import subprocess
import sys

import numpy as np
import pytest

import phalanx


@pytest.fixture
def run(proto, data, tmp_path):
    return phalanx.fit(proto, data, valid=data, epochs=3, batch=20, run_dir=tmp_path / "run")


def test_a_run_with_a_directory_has_the_bits_of_one_in_memory(run, proto, data, tmp_path):
    memory = phalanx.fit(proto, data, valid=data, epochs=3, batch=20)
    assert memory.params_hash == run.params_hash
    assert run.run_dir == str(tmp_path / "run")
    for name, values in memory.metrics.items():
        if name != "samples_per_s":
            np.testing.assert_allclose(run.metrics[name], values, rtol=1e-6, err_msg=name)


def test_an_opened_run_is_the_run(run, data):
    opened = phalanx.Run.open(run.run_dir)
    assert (opened.params_hash, opened.steps, opened.finished) == (run.params_hash, 9, True)
    np.testing.assert_array_equal(opened.predict(data[0]), run.predict(data[0]))
    assert opened.evaluate(*data) == run.evaluate(*data)
    np.testing.assert_array_equal(opened.metrics["val_loss"], run.metrics["val_loss"])
    assert repr(opened) == repr(run)


def test_resuming_gives_what_one_long_run_gives(run, proto, data):
    longer = run.resume(epochs=5)
    whole = phalanx.fit(proto, data, valid=data, epochs=5, batch=20)
    assert (longer.params_hash, longer.steps) == (whole.params_hash, 15)
    np.testing.assert_allclose(longer.metrics["loss"], whole.metrics["loss"], rtol=1e-6)
    assert longer.resume().params_hash == longer.params_hash


def test_a_run_is_pushed_once(run, proto, data, tmp_path, monkeypatch):
    place = tmp_path / "place"
    pushed = run.push(str(place))
    assert pushed["url"] == f"file://{place}/{pushed['uid']}"
    for file in pushed["files"]:
        assert (place / pushed["uid"] / file["path"]).read_bytes() == (tmp_path / "run" / file["path"]).read_bytes()
    monkeypatch.setenv("PHALANX_ARTIFACTS", str(place))
    assert phalanx.Run.open(run.run_dir).push()["sent_files"] == 0
    with pytest.raises(phalanx.InputError, match="no place for artifacts"):
        run.push("ftp://nowhere")
    with pytest.raises(phalanx.InputError, match="in memory"):
        phalanx.fit(proto, data, epochs=1, batch=20).push(str(place))


def test_fit_goes_on_with_the_run_that_is_there(run, proto, data):
    again = phalanx.fit(proto, data, valid=data, epochs=3, batch=20, run_dir=run.run_dir)
    assert again.params_hash == run.params_hash
    with pytest.raises(phalanx.InputError, match="another run") as caught:
        phalanx.fit(proto, data, valid=data, epochs=4, batch=20, run_dir=run.run_dir)
    assert caught.value.hint == "give the run another directory"


def test_a_run_in_memory_cannot_be_resumed(proto, data):
    with pytest.raises(phalanx.InputError, match="in memory") as caught:
        phalanx.fit(proto, data).resume(epochs=2)
    assert "run_dir" in caught.value.hint


def test_directories_without_a_run_are_told(tmp_path):
    for call in (phalanx.Run.open, phalanx.fuse):
        with pytest.raises(phalanx.InputError):
            call(tmp_path)


def test_a_checkpoint_is_fused(run, tmp_path):
    fused = phalanx.fuse(run.run_dir)
    assert (fused.step, fused.stages) == (9, 1)
    for name, values in run.state_dict().items():
        np.testing.assert_array_equal(fused.state_dict()[name], values)
    fused.save_safetensors(tmp_path / "fused.safetensors")
    assert (tmp_path / "fused.safetensors").stat().st_size > 0
    with pytest.raises(phalanx.PhalanxError, match="step 7"):
        phalanx.fuse(run.run_dir, step=7)


def test_what_is_saved_can_be_trained_on(run, data, tmp_path):
    run.save_onnx(tmp_path / "trained.onnx")
    run.save_safetensors(tmp_path / "trained.safetensors")
    on = phalanx.fit(tmp_path / "trained.onnx", data, optimizer="sgd", lr=1e-12, steps=1)
    np.testing.assert_allclose(on.state_dict()["fc.weight"], run.state_dict()["fc.weight"], atol=1e-6)
    with pytest.raises(phalanx.PhalanxError):
        run.save_onnx(tmp_path / "no" / "such" / "directory" / "m.onnx")


def test_the_command_line_reads_the_run(run):
    told = subprocess.run(
        [sys.executable, "-m", "phalanx", "run", "show", run.run_dir, "--output", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(told.stdout)["steps"] == 9


def test_losses_are_drawn(run):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = run.plot()
    assert [line.get_label() for line in axes.get_lines()] == ["training", "validation"]
    assert axes.get_lines()[0].get_xdata().tolist() == run.metrics["step"].tolist()


def test_metrics_of_a_line_that_is_being_written_are_left_out(run):
    with open(f"{run.run_dir}/metrics.jsonl", "a") as file:
        file.write('{"step": 10, "pass"')
    assert phalanx.Run.open(run.run_dir).metrics["step"].tolist() == list(range(1, 10))


def test_runs_are_found_by_what_they_are(proto, data, tmp_path):
    runs = tmp_path / "runs"
    for batch in (10, 20):
        phalanx.fit(proto, data, valid=data, epochs=2, batch=batch, run_dir=runs / f"of-{batch}")
    found = phalanx.runs(runs, where="train.batch = 20 and state = finished")
    assert [record.name for record in found] == ["of-20"]
    (record,) = found
    run = phalanx.Run.open(record.run_dir)
    assert (record.steps, record.params["train.batch"]) == (run.steps, "20")
    steps, losses = record.curve("loss")
    np.testing.assert_array_equal(steps, np.arange(1, run.steps + 1))
    np.testing.assert_array_equal(losses, run.metrics["loss"])
    assert record.last["val_loss"] == run.metrics["val_loss"][-1]
    assert record.open().params_hash == run.params_hash
    by_steps = phalanx.runs(runs, sort="-steps")
    assert [each.name for each in by_steps] == ["of-10", "of-20"]
    assert len(phalanx.runs(runs, limit=1)) == 1


def test_filters_that_make_no_sense_are_told(run, tmp_path):
    with pytest.raises(phalanx.InputError, match="val_los"):
        phalanx.runs(tmp_path, where="val_los < 1")
    with pytest.raises(phalanx.InputError):
        phalanx.runs(tmp_path, where="loss <")
    with pytest.raises(phalanx.InputError, match="los"):
        phalanx.runs(tmp_path)[0].curve("los")
