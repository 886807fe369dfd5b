"""TensorBoard's own reader opens the event files beside a run."""

import pathlib
import signal
import time

import pytest
from tensorboard.backend.event_processing import event_accumulator


def scalars(run: pathlib.Path):
    """What TensorBoard shows: by tag a list of steps and values."""
    everything = {event_accumulator.SCALARS: 0}
    events = event_accumulator.EventAccumulator(str(run / "tensorboard"), size_guidance=everything)
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def same(shown, recorded):
    assert set(shown) == set(recorded)
    for tag, points in recorded.items():
        assert [step for step, _ in shown[tag]] == [step for step, _ in points], tag
        # Event files hold 32-bit numbers.
        assert [value for _, value in shown[tag]] == pytest.approx([value for _, value in points], rel=1e-6), tag


def test_steps_and_validations_are_read(runs):
    run = runs.train("first")
    shown = scalars(run)
    assert {"loss", "lr", "grad_norm", "samples_per_s", "val_loss", "val_acc"} <= set(shown)
    assert len(shown["loss"]) == 34 and len(shown["val_acc"]) == 2
    same(shown, runs.metrics("first"))


def test_a_killed_and_resumed_run_shows_every_step_once(runs):
    runs.run_file("epochs = 100000\ncheckpoint_every = 10")
    process = runs.start("train", "run.toml", "--run-dir", "runs/killed", "--output", "quiet")
    log = runs.directory / "runs" / "killed" / "metrics.jsonl"
    until = time.monotonic() + 60
    # Killed at a step that its newest checkpoint does not have.
    while not log.exists() or log.read_bytes().count(b"\n") < 45:
        assert process.poll() is None and time.monotonic() < until, process.stderr.read() if process.poll() else "slow"
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_at = max(step for step, _ in runs.metrics("killed")["loss"])
    steps = killed_at + 20
    runs.phalanx("run", "resume", "runs/killed", "--steps", steps, "--output", "quiet")
    files = sorted((runs.directory / "runs" / "killed" / "tensorboard").iterdir())
    assert len(files) == 2
    shown = scalars(runs.directory / "runs" / "killed")
    assert [step for step, _ in shown["loss"]] == list(range(1, steps + 1))
    same(shown, runs.metrics("killed"))


def test_event_files_can_be_switched_off(runs, monkeypatch):
    monkeypatch.setenv("PHALANX_TENSORBOARD", "off")
    assert not (runs.train("without") / "tensorboard").exists()
