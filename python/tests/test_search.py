"""Searches with a function as objective."""

from __future__ import annotations

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict

import pytest

from phalanx import _phalanx
from phalanx.errors import ConfigError, InputError, SearchFailed
from phalanx.search import Space, hypervolume, log_range, pareto_front, repeat, run, search, when

PATIENCE = 50
GOALS = {"accuracy": "max", "params": "min"}
SPACE = {
    "layers": range(1, 13),
    "kernel": [1, 3, 5],
    "head": ["pool", "dense"],
    "width": when([32, 64], head="dense"),
    "optimizer": "adam",
}


def params(candidate: Dict[str, Any]) -> float:
    return candidate["layers"] * candidate["kernel"] ** 2 + candidate.get("width", 0)


def accuracy(candidate: Dict[str, Any]) -> float:
    good = 1 - 1 / (candidate["layers"] + 1) - abs(candidate["kernel"] - 3) / 10
    return good + candidate.get("width", 0) / 1000


def both(candidate: Dict[str, Any]) -> Dict[str, float]:
    return {"accuracy": accuracy(candidate), "params": params(candidate)}


def true_front() -> "list[tuple[float, float]]":
    points = [(-accuracy(candidate), params(candidate)) for candidate in Space(SPACE)]
    better = lambda a, b: a != b and a[0] <= b[0] and a[1] <= b[1]  # noqa: E731
    return sorted({(-a, p) for a, p in points if not any(better(other, (a, p)) for other in points)})


def test_spaces_hold_what_their_dict_says():
    space = Space(SPACE)
    everything = list(space)
    assert space.count() == len(everything) == 12 * 3 * 3
    assert all(("width" in each) == (each["head"] == "dense") and each["optimizer"] == "adam" for each in everything)
    assert len({json.dumps(each) for each in everything}) == len(everything)
    assert all(space.sample(seed) in everything for seed in range(50))
    lr = log_range(1e-4, 1e-2, 9)
    assert (lr[0], lr[4], lr[8], len(lr)) == (1e-4, 1e-3, 1e-2, 9)


def test_the_space_of_the_extension_keeps_candidates_valid():
    space = Space(SPACE)._space
    a, b = space.sample(1), space.sample(2)
    for seed in range(100):
        child = space.crossover(a, b, seed)
        mutant = space.mutate(child, 1, seed)
        assert space.contains(child) and space.contains(mutant) and mutant != child
        assert space.fold(mutant) == mutant
        a, b = mutant, a
    assert not space.contains([0, 0, 0, 1])
    assert space.fold([0, 0, 0, 1]) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({}, "nothing to choose"),
        ({"lr": 0.1}, "nothing to choose"),
        ({"layers": []}, "`layers` has no choice"),
        ({"layers": {1, 2}}, "are a set"),
        ({"layers": {"a": [1]}}, "are a dict"),
        ({"layers": [1, 1]}, "choice `1` twice"),
        ({"layers": [1, math.nan]}, "not finite"),
        ({"width": when([1, 2], head="dense"), "head": ["dense"]}, "comes after it"),
        ({"head": ["dense"], "width": when([1, 2], heat="dense")}, "did you mean `head`"),
        ({"head": ["dense"], "width": when([1, 2], head="pool")}, "none of its choices"),
        ([1, 2], "a dict of choices, not list"),
    ],
)
def test_a_wrong_space_is_explained(space, words):
    with pytest.raises(InputError, match=words):
        search(both, space, objectives=GOALS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objectives": {}}, "no objective"),
        ({"objectives": {"accuracy": "up"}}, "the goal of `accuracy` is 'up'"),
        ({"algorithm": "quided"}, 'did you mean "guided"'),
        ({"settings": {"populations": 3}}, "unknown field `populations`"),
        ({"trials": 0}, "`trials`"),
        ({"workers": 0}, "`workers`"),
        ({"constraints": {"params": 5}}, "constraint `params`"),
        ({"constraints": {"params": {"atmost": 5}}}, "constraint `params`"),
        ({"constraints": {"params": (None, None)}}, "has no limit"),
        ({"budgets": [1, 2]}, "takes no `budget`"),
        ({"known": {"params": 3}}, "no function for `params`"),
    ],
)
def test_wrong_options_are_explained(options, words):
    with pytest.raises(InputError, match=words):
        search(both, SPACE, **{"objectives": GOALS, **options})


@pytest.mark.parametrize("algorithm", ["guided", "nsga2", "random", "local", "regularized", "evolution_pareto"])
def test_every_algorithm_searches(algorithm):
    found = search(both, SPACE, objectives=GOALS, trials=40, algorithm=algorithm, workers=2)
    assert found.ended == "finished" and len(found.trials) == 40
    assert len({json.dumps(trial.candidate) for trial in found.trials}) == 40
    for trial in found.trials:
        assert trial.status == "completed" and trial.values == both(trial.candidate)
    points = [(trial.values["accuracy"], trial.values["params"]) for trial in found.trials]
    assert {trial.number - 1 for trial in found.front} >= set() and 0 < found.hypervolume <= 1.21
    front = {points[at] for at in pareto_front(points, ["max", "min"])}
    assert {(trial.values["accuracy"], trial.values["params"]) for trial in found.front} == front
    assert found.best.values["accuracy"] == max(accuracy for accuracy, _ in points)
    assert found.best_by("params").values["params"] == min(params for _, params in points)
    assert len(found.hypervolumes) == 40 and found.hypervolumes == sorted(found.hypervolumes)


def test_the_whole_space_gives_the_true_front():
    found = search(both, SPACE, objectives=GOALS, trials=1000, algorithm="grid")
    assert len(found.trials) == Space(SPACE).count()
    assert sorted((trial.values["accuracy"], trial.values["params"]) for trial in found.front) == true_front()


def test_a_seed_repeats_a_search_with_one_worker():
    runs = [search(both, SPACE, objectives=GOALS, trials=30, seed=seed, workers=1).to_dicts() for seed in (3, 3, 4)]
    candidates = [[row["archid"] for row in run] for run in runs]
    assert candidates[0] == candidates[1] != candidates[2]
    assert set(runs[0][0]) >= {"trial", "layers", "kernel", "accuracy", "params", "is_pareto", "status"}


def test_known_values_are_computed_before_a_trial_and_constraints_checked():
    tried = []

    def objective(candidate):
        tried.append(candidate)
        return accuracy(candidate)

    found = search(
        objective,
        SPACE,
        objectives=GOALS,
        known={"params": params},
        constraints={"params": (None, 50), "accuracy": {"at_least": 0.5}},
        trials=25,
        workers=1,
    )
    assert tried and all(params(candidate) <= 50 for candidate in tried)
    infeasible = [trial for trial in found.trials if accuracy(trial.candidate) < 0.5]
    assert infeasible and all(trial.status == "infeasible" and trial.why for trial in infeasible)
    assert not any(trial.is_on_front for trial in infeasible)


def test_ctrl_c_while_candidates_are_looked_at_ends_the_search():
    tried = []

    def known(candidate):
        if len(tried) >= 5:
            raise KeyboardInterrupt
        return params(candidate)

    def objective(candidate):
        tried.append(candidate)
        return accuracy(candidate)

    found = search(objective, SPACE, objectives=GOALS, known={"params": known}, workers=1)
    assert found.ended == "stopped" and 5 <= len(tried) < 10
    assert sum(trial.status == "completed" for trial in found.trials) >= 4


def test_a_constraint_that_nothing_meets_ends_the_search():
    with pytest.raises(SearchFailed, match="`params` above 0") as raised:
        search(both, SPACE, objectives=GOALS, known={"params": params}, constraints={"params": (None, 0)})
    assert "the nearest 1" in raised.value.reason


def test_budgets_train_the_better_ones_longer():
    calls = []

    def objective(candidate, budget):
        calls.append(budget)
        return {"accuracy": accuracy(candidate) * (1 - 1 / (budget + 1)), "params": params(candidate)}

    found = search(objective, SPACE, objectives=GOALS, trials=30, budgets=[1, 3, 9], workers=2)
    counts = [calls.count(budget) for budget in (1, 3, 9)]
    assert counts[0] == 30 > counts[1] > 0 < counts[2] < 30
    assert found.front and all(trial.budget == 9 and trial.status == "completed" for trial in found.front)
    with pytest.raises(InputError, match="takes a `budget`"):
        search(objective, SPACE, objectives=GOALS)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"accuracy": math.nan, "params": 1}, "returned nan as `accuracy`"),
        ({"acc": 0.5, "params": 1}, "returned no `accuracy` but `acc`, `params`"),
        ({"accuracy": "good", "params": 1}, "returned 'good' as `accuracy`"),
        (0.5, "returned float, not a dict with `accuracy`, `params`"),
        (None, "returned NoneType"),
    ],
)
def test_an_objective_that_returns_nonsense_ends_the_search_soon(returned, words):
    calls = []

    def objective(candidate):
        calls.append(candidate)
        return returned

    with pytest.raises(SearchFailed, match="the first 5 trials all failed: 5 × the objective") as raised:
        search(objective, SPACE, objectives=GOALS, workers=1)
    assert words in raised.value.reason and len(calls) == 5


def test_a_function_that_always_raises_ends_the_search_soon():
    def objective(candidate):
        raise ZeroDivisionError("no division here")

    with pytest.raises(SearchFailed, match="5 × ZeroDivisionError: no division here") as raised:
        search(objective, SPACE, objectives=GOALS, workers=1)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_search_that_failed_lets_go_of_its_directory(tmp_path: pathlib.Path):
    def objective(candidate):
        raise OSError("no disk")

    with pytest.raises(SearchFailed, match="no disk") as kept:
        search(objective, SPACE, objectives=GOALS, workers=1, directory=tmp_path)
    found = search(both, SPACE, objectives=GOALS, trials=10, workers=1, directory=tmp_path)
    statuses = [trial.status for trial in found.trials]
    assert kept.value and statuses[:5] == ["failed"] * 5 and "completed" in statuses[5:]


def test_a_candidate_that_fails_is_a_result():
    def objective(candidate):
        if candidate["kernel"] == 5:
            raise MemoryError("too large")
        return both(candidate)

    found = search(objective, SPACE, objectives=GOALS, trials=40, workers=3)
    failed = [trial for trial in found.trials if trial.status == "failed"]
    assert failed and all(trial.why == "MemoryError: too large" for trial in failed)
    assert all((trial.candidate["kernel"] == 5) == (trial.status == "failed") for trial in found.trials)


def test_all_workers_have_a_trial_at_once():
    together = threading.Barrier(4, timeout=PATIENCE)

    def objective(candidate):
        together.wait()
        return both(candidate)

    assert len(search(objective, SPACE, objectives=GOALS, trials=8, workers=4).trials) == 8


def test_an_executor_of_others_runs_trials():
    names = set()

    def objective(candidate):
        names.add(threading.current_thread().name)
        return both(candidate)

    with ThreadPoolExecutor(2, thread_name_prefix="own") as executor:
        found = search(objective, SPACE, objectives=GOALS, trials=12, executor=executor)
    assert len(found.trials) == 12 and all(name.startswith("own") for name in names)


def test_nodes_run_trials():
    from phalanx.jobs import Executor

    def objective(candidate):
        import os

        return {"accuracy": candidate["x"] ** 2, "pid": os.getpid()}

    with Executor(local=2) as executor:
        found = search(
            objective, {"x": range(10)}, objectives={"accuracy": "max"}, trials=10, executor=executor, workers=2
        )
    assert found.best.candidate == {"x": 9}
    assert os.getpid() not in {trial.values["pid"] for trial in found.trials}


def command(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "phalanx", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_directory_is_read_by_the_command_and_gone_on_with(tmp_path: pathlib.Path):
    directory, tried = tmp_path / "first", []

    def objective(candidate):
        tried.append(candidate)
        return both(candidate)

    options = {"objectives": GOALS, "directory": directory, "workers": 1}
    found = search(objective, SPACE, trials=12, **options)
    assert found.directory == str(directory)
    about = json.loads((directory / "search.json").read_text())
    assert (about["kind"], about["trials"], about["id"]) == ("python", 12, "first")
    assert json.loads((directory / "results/front.json").read_text())
    lines = [json.loads(line) for line in (directory / "events.jsonl").open()]
    assert [line["event"] for line in lines].count("trial_started") == 12
    assert "t12" in command("search", "status", str(directory))
    assert found.best.archid in command("search", "show", str(directory))
    command("search", "plot", str(directory))
    assert (directory / "results/pareto_accuracy_vs_params.png").exists()

    again = search(objective, SPACE, trials=12, **options)
    assert again.to_dicts() == found.to_dicts() and len(tried) == 12
    further = search(objective, SPACE, trials=30, **options)
    assert len(further.trials) == len(tried) == 30
    assert further.to_dicts()[0]["archid"] == found.to_dicts()[0]["archid"]
    undisturbed = search(both, SPACE, trials=30, objectives=GOALS, workers=1)
    assert [trial.archid for trial in further.trials] == [trial.archid for trial in undisturbed.trials]
    with pytest.raises(InputError, match="what differs: objectives, seed"):
        search(objective, SPACE, **{**options, "objectives": {"accuracy": "max"}, "seed": 1})


PROGRAM = """
    import sys, time
    from phalanx.search import search

    tried = []

    def objective(candidate):
        tried.append(candidate)
        print("trial", candidate["x"], flush=True)
        if len(sys.argv) > 2 and len(tried) == int(sys.argv[2]):
            print("last", flush=True)
            time.sleep(1000)
        return candidate["x"]

    found = search(objective, {"x": range(20)}, objectives={"x": "min"}, trials=20, algorithm="grid",
                   workers=1, directory=sys.argv[1])
    print(found.ended, sum(trial.status == "completed" for trial in found.trials), found.best.candidate)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_is_done_is_kept(tmp_path: pathlib.Path, how: signal.Signals):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    arguments = [sys.executable, str(program), str(tmp_path / "kept")]
    with subprocess.Popen([*arguments, "8"], stdout=subprocess.PIPE, text=True) as process:
        before = []
        while (line := process.stdout.readline()) != "last\n":
            assert line, "the program has ended"
            before.append(line.strip())
        process.send_signal(how)
        try:
            rest, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    if how == signal.SIGINT:
        assert process.returncode == 0 and rest.startswith("stopped 7 ")
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    *after, end = ran.stdout.splitlines()
    assert end == "finished 20 {'x': 0}"
    # The trial that was interrupted runs again, and no other does.
    assert before[7] == after[0]
    assert sorted(before[:7] + after) == sorted(f"trial {x}" for x in range(20))


def test_the_core_can_be_driven_by_hand():
    space = Space({"x": [1, 2, 3]})
    told = {
        "name": "own",
        "algorithm": "grid",
        "algorithm_settings": {},
        "seed": 0,
        "trials": 3,
        "objectives": [{"name": "loss", "goal": "min", "cheap": False}],
        "constraints": {},
        "rungs": [1.0],
        "eta": 3,
        "finish": "none",
        "early_failures": 5,
    }
    core = _phalanx.SearchCore(space._space, json.dumps(told))
    assert core.resume() == [] and "no node is free" in core.reason()
    commands = core.capacity(2)
    assert commands == [("run", 1, [0], 0.0, 1.0, 0), ("run", 2, [1], 0.0, 1.0, 0)]
    assert core.reached(2, 1.0, {"loss": 4.0}, 0.5) == [("run", 3, [2], 0.0, 1.0, 0)]
    # Twice, or of a trial that does not exist: nothing.
    assert core.reached(2, 1.0, {"loss": 0.0}, 0.5) == core.failed(9, "lost", True) == []
    assert core.failed(3, "lost", True) == [("run", 3, [2], 0.0, 1.0, 0)]
    core.reached(1, 1.0, {"loss": 7.0}, 0.5)
    assert core.reached(3, 1.0, {"loss": 5.0}, 0.5) == [("ended", "finished", None)]
    assert core.front() == [2]


def test_fronts_and_volumes():
    assert pareto_front([]) == [] and pareto_front([(1, 2), (2, 1), (2, 2)]) == [0, 1]
    assert hypervolume([(1, 1, 1)], (2, 3, 4)) == 6.0
    assert hypervolume([(0.9, 10)], (0.5, 20), ["max", "min"]) == pytest.approx(4.0)
    for wrong in ([(1, 2), (1,)], [(math.nan, 1)]):
        with pytest.raises(InputError):
            pareto_front(wrong)


def test_torch_modules_are_candidates():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    y = (x[:, :2].sum(1) > 0).long()

    def model(candidate):
        sizes = [8, *[candidate["width"]] * candidate["layers"]]
        layers = [each for a, b in zip(sizes, sizes[1:]) for each in (torch.nn.Linear(a, b), torch.nn.ReLU())]
        return torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 2))

    def objective(candidate):
        net = model(candidate)
        optimizer = torch.optim.Adam(net.parameters(), lr=candidate["lr"])
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        return {"loss": loss}

    found = search(
        objective,
        {"layers": [1, 2], "width": [4, 16], "lr": log_range(1e-4, 1e-1, 4)},
        objectives={"loss": "min", "params": "min"},
        known={"params": lambda candidate: sum(each.numel() for each in model(candidate).parameters())},
        trials=12,
        workers=1,
    )
    assert found.best.values["loss"] < 0.5 < max(trial.values["loss"] for trial in found.trials)
    assert found.best_by("params").values["params"] == 8 * 4 + 4 + 4 * 2 + 2


def test_blocks_are_repeated_with_choices_of_their_own():
    cell = {"op": ["conv", "skip"], "kernel": when([3, 5], op="conv"), "bias": True}
    space = Space({"depth": [1, 2], "cells": repeat("depth", cell), "head": repeat([0, 1], {"width": [8, 16]})})
    found = list(space)
    assert space.count() == len(found) == (3 + 9) * (1 + 2)
    assert len({json.dumps(each) for each in found}) == len(found)
    for each in found:
        assert len(each["cells"]) == each["depth"] and all(cell["bias"] is True for cell in each["cells"])
        assert all(("kernel" in cell) == (cell["op"] == "conv") for cell in each["cells"])
    assert {len(each["head"]) for each in found} == {0, 1}
    block = {"c": repeat([1, 2], {"d": [1, 2]}), "e": when([8, 9], a=2)}
    inside = Space({"a": [1, 2], "b": when(repeat(2, block), a=2)})
    assert inside.count() == 1 + 12**2
    assert list(inside)[0] == {"a": 1} and list(inside)[1]["b"][0] == {"c": [{"d": 1}], "e": 8}
    result = search(
        lambda each: sum(cell.get("kernel", 1) for cell in each["cells"]),
        space,
        objectives={"size": "max"},
        trials=36,
        workers=1,
    )
    assert result.best.values == {"size": 10.0} and result.best.candidate["depth"] == 2


@pytest.mark.parametrize(
    "block, reason",
    [
        (lambda: repeat(3, {}), "nothing to repeat"),
        (lambda: Space({"a": [1], "b": repeat("c", {"d": [1]})}), "`c`, which the space does not have"),
        (lambda: Space({"a": ["x"], "b": repeat("a", {"d": [1]})}), "is repeated"),
        (lambda: Space({"b": repeat(1.5, {"d": [1]})}), "is repeated 1.5 times"),
        (lambda: Space({"b": repeat(-1, {"d": [1]})}), "whole numbers"),
        (lambda: Space({"b": repeat(2, {"d": when([1], b=2)})}), "`b`, which is a block"),
        (lambda: Space({"b": repeat(2, {"d": [1], "e": when([1], d=7)})}), "none of its choices"),
    ],
)
def test_repeats_that_cannot_be_are_said(block: Any, reason: str):
    with pytest.raises(InputError, match=reason):
        block()


PROGRAM_SEARCH = """
[space]
x = {{ from = 0, to = 9 }}
kind = ["a", "b"]
[trial]
command = ["sh", "{program}", "$x", "$kind"]
epochs = 4
[search]
trials = 12
algorithm = "nsga2"
rungs = {{ first = "1 epochs", factor = 4 }}
[objective.near]
goal = "min"
[objective.far]
goal = "max"
"""


def program_search(folder: pathlib.Path, script: str) -> pathlib.Path:
    (folder / "program.sh").write_text(script)
    file = folder / "search.toml"
    file.write_text(PROGRAM_SEARCH.format(program=folder / "program.sh"))
    return file


SQUARES = 'echo "{\\"near\\": $(( $1 * $1 )), \\"far\\": $1}"\n'


def test_a_search_file_is_searched_on_nodes(tmp_path: pathlib.Path):
    file, told = program_search(tmp_path, SQUARES), []
    found = run(file, local=2, allow_exec=True, directory=tmp_path / "first", seed=3, progress=told.append)
    assert found.ended == "finished" and found.objectives == {"near": "min", "far": "max"}
    assert found.directory == str(tmp_path / "first") and found.models == []
    assert [trial["trial"] for trial in found.trials] == list(range(1, 13))
    assert all(trial["near"] == trial["x"] ** 2 and trial["kind"] in ("a", "b") for trial in found.trials)
    assert {trial.number for trial in found.front} == {t["trial"] for t in found.trials if t["is_pareto"]}
    assert found.best.values["near"] == min(trial["near"] for trial in found.trials)
    assert found.best_by("far").budget == 4 and 0 <= found.hypervolume <= 1
    assert told[-1]["trials"] == 12 and told[-1]["of"] == 12 and told[-1]["front"] == len(found.front)
    assert any(news["last"] for news in told)
    # The same call trains nothing again; a longer one goes on.
    records = (tmp_path / "first" / "events.jsonl").read_text()
    again = run(file, local=1, allow_exec=True, directory=tmp_path / "first", seed=3)
    assert again.trials == found.trials and (tmp_path / "first" / "events.jsonl").read_text() == records
    with pytest.raises(InputError, match="another search; what differs: seed"):
        run(file, local=1, allow_exec=True, directory=tmp_path / "first", seed=4)


def test_what_cannot_be_searched_on_nodes_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    file = program_search(tmp_path, SQUARES)
    with pytest.raises(ConfigError, match="no nodes are named"):
        run(file)
    with pytest.raises(InputError, match="trials of this search are programs"):
        run(file, local=1)
    with pytest.raises(InputError, match="ready:cn"):
        run("ready:cn", local=1)
    with pytest.raises(InputError, match="`workers` must be at least 1"):
        run(file, local=1, workers=0)
    assert not (tmp_path / "searches").exists()
    with pytest.raises(SearchFailed, match="no such knob"):
        run(
            program_search(tmp_path, "echo no such knob >&2; exit 7\n"),
            local=1,
            allow_exec=True,
            directory=tmp_path / "failed",
        )


STOPPED = """
import json, os, signal, sys, threading
from phalanx.search import run

def stop(news):
    if news["last"] is not None and not asked.is_set():
        asked.set()
        os.kill(os.getpid(), signal.SIGINT)

asked = threading.Event()
found = run("search.toml", local=1, workers=1, allow_exec=True, directory="first", progress=stop)
further = run("search.toml", local=1, workers=1, allow_exec=True, directory="first")
print(json.dumps([found.ended, len(found.trials), further.ended, len(further.trials)]))
"""


def test_ctrl_c_ends_a_search_on_nodes_and_the_same_call_goes_on(tmp_path: pathlib.Path):
    program_search(tmp_path, SQUARES)
    ran = subprocess.run(
        [sys.executable, "-c", STOPPED], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    first, tried, then, all_tried = json.loads(ran.stdout)
    assert (first, then, all_tried) == ("stopped", "finished", 12) and 0 < tried < 12
    lines = (tmp_path / "first" / "events.jsonl").read_text().splitlines()
    reached = [json.loads(line)["value"] for line in lines if '"trial_reached"' in line]
    stretches = [(each["trial"], each["budget"]) for each in reached]
    assert len(set(stretches)) == len(stretches)
