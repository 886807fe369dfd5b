"""Programs that were written for Archai's discrete search."""

from __future__ import annotations

import csv
import inspect
import json
import math
import pathlib
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from phalanx.compat.archai.discrete_search import algos
from phalanx.compat.archai.discrete_search.algos import (
    EvolutionParetoSearch,
    MoBananasSearch,
    SuccessiveHalvingSearch,
)
from phalanx.compat.archai.discrete_search.api import (
    ArchaiModel,
    AsyncModelEvaluator,
    ModelEvaluator,
    SearchObjectives,
)
from phalanx.compat.archai.discrete_search.evaluators import (
    AvgOnnxLatency,
    EvaluationFunction,
    NodesEvaluator,
    ProgressiveTraining,
    RayParallelEvaluator,
    TorchFlops,
    TorchLatency,
    TorchMacs,
    TorchNumParameters,
)
from phalanx.compat.archai.discrete_search.predictors import PredictiveDNNEnsemble
from phalanx.compat.archai.discrete_search.search_spaces.config import (
    ArchConfig,
    ArchParamTree,
    ConfigSearchSpace,
    DiscreteChoice,
    repeat_config,
)
from phalanx.errors import InputError, SearchFailed

PATIENCE = 50


def tree() -> ArchParamTree:
    kernel = DiscreteChoice([1, 3, 5])
    block = {"kernel": kernel, "again": kernel, "act": DiscreteChoice(["relu", "gelu"])}
    return ArchParamTree(
        {"head": DiscreteChoice([16, 32]), "fixed": 7, "blocks": repeat_config(block, [1, 2, 3], share_arch=False)}
    )


class Net:
    """Uses one activation only where the kernel is large."""

    def __init__(self, config: ArchConfig) -> None:
        self.head = config.pick("head")
        self.kernels = []
        for block in config.pick("blocks"):
            self.kernels.append(block.pick("kernel"))
            if self.kernels[-1] > 1:
                block.pick("act")

    @property
    def params(self) -> float:
        return float(self.head + sum(kernel**2 for kernel in self.kernels))

    @property
    def quality(self) -> float:
        return 1 - 1 / (1 + sum(self.kernels)) + self.head / 1000


def space(**options) -> ConfigSearchSpace:
    return ConfigSearchSpace(Net, tree(), seed=1, **options)


def test_a_choice_in_two_places_is_one_parameter_and_copies_have_their_own():
    params = tree().params
    assert list(params)[:3] == ["head", "blocks._repeat_times", "blocks._configs.0.kernel"]
    assert len(params) == 2 + 3 * 2 and tree().num_archs == 2 * 3 * (3 * 2) ** 3
    shared = ArchParamTree({"b": repeat_config({"k": DiscreteChoice([1, 2])}, 4, share_arch=True)})
    assert list(shared.params) == ["b._repeat_times", "b._configs.0.k"] and shared.num_archs == 2
    config = shared.sample_config()
    assert len({block.pick("k") for block in config.pick("b")}) == 1


def test_what_a_model_does_not_pick_does_not_tell_architectures_apart():
    plain = space(hash_archid=False)
    model = plain.random_sample()
    encoded = plain.arch_param_tree.encode_config(model.metadata["config"])
    assert model.archid == str(tuple(encoded)) and len(encoded) == 2 + 3 * (1 + 2)
    assert [math.isnan(value) for value in encoded] == [value == -1 for value in plain.encode(model)]
    blocks = model.metadata["config"].pick("blocks")
    with pytest.raises(IndexError, match="no block 5"):
        blocks[5]
    with pytest.raises(KeyError, match="there are head, fixed, blocks"):
        model.metadata["config"].pick("heads")
    ids = {}
    for _ in range(400):
        drawn = plain.random_sample()
        key = (drawn.arch.head, len(drawn.arch.kernels), tuple(drawn.arch.kernels))
        ids.setdefault(key, set()).add(drawn.archid)
    assert all(len(found) <= 2 ** sum(kernel > 1 for kernel in key[2]) for key, found in ids.items())
    smallest = [found for key, found in ids.items() if max(key[2]) == 1]
    assert smallest and all(len(found) == 1 for found in smallest)


def test_architectures_are_written_and_read(tmp_path: pathlib.Path):
    own = space()
    model = own.random_sample()
    assert len(model.archid) == 40
    own.save_arch(model, str(tmp_path / model.archid))
    written = json.loads((tmp_path / f"{model.archid}.json").read_text())
    assert written["blocks"]["_config_type"] == "config_list" and written["fixed"] == 7
    assert own.load_arch(str(tmp_path / model.archid)).archid == model.archid
    children = [own.mutate(model) for _ in range(20)] + [own.crossover([model, own.random_sample()])]
    assert len({child.archid for child in children}) > 2


class Later(AsyncModelEvaluator):
    """Counts; every third model fails."""

    def __init__(self) -> None:
        self.sent = []
        self.log = []

    def send(self, arch, budget=None):
        self.log.append("send")
        self.sent.append(arch)

    def fetch_all(self):
        self.log.append("fetch")
        values = [None if at % 3 == 2 else model.arch.quality for at, model in enumerate(self.sent)]
        self.sent = []
        return values


def test_values_are_computed_once_and_failures_are_nan(tmp_path: pathlib.Path):
    later, calls = Later(), []
    objectives = SearchObjectives()
    objectives.add_objective("Quality", later, higher_is_better=True)
    count = EvaluationFunction(lambda model, budget: calls.append(model.archid) or model.arch.params)
    objectives.add_objective("params", count, higher_is_better=False, compute_intensive=False, constraint=(0, 60))
    own = space()
    models = list({model.archid: model for model in (own.random_sample() for _ in range(8))}.values())
    values = objectives.eval_all_objs(models)
    assert [math.isnan(value) for value in values["Quality"]] == [at % 3 == 2 for at in range(len(models))]
    assert later.log == ["send"] * len(models) + ["fetch"] and len(calls) == len(models)
    objectives.eval_all_objs(models)
    assert len(calls) == len(models) and later.log.count("send") == len(models)
    _, valid = objectives.validate_constraints(models)
    assert valid == [at for at, model in enumerate(models) if model.arch.params <= 60]
    objectives.save_cache(tmp_path / "cache.yaml")
    again = SearchObjectives()
    again.load_cache(tmp_path / "cache.yaml")
    assert again.lookup_cache("params", models[0].archid) == models[0].arch.params
    with pytest.raises(InputError, match="two objectives"):
        objectives.add_constraint("params", count, (0, 1))
    with pytest.raises(InputError, match="compute intensive"):
        objectives.add_objective("more", count, True, constraint=(0, 1))
    with pytest.raises(InputError, match="neither a ModelEvaluator"):
        objectives.add_objective("other", lambda model: 1, True)


def objectives_of(limit: float = 80) -> SearchObjectives:
    objectives = SearchObjectives()
    quality = EvaluationFunction(lambda model, budget: model.arch.quality)
    params = EvaluationFunction(lambda model, budget: model.arch.params)
    objectives.add_objective("Quality (valid)", quality, higher_is_better=True)
    objectives.add_objective("params", params, higher_is_better=False, compute_intensive=False)
    objectives.add_constraint("limit", params, (0, limit))
    return objectives


def test_the_evolutionary_search_writes_what_it_finds(tmp_path: pathlib.Path):
    search = EvolutionParetoSearch(
        space(), objectives_of(), tmp_path, num_iters=4, init_num_models=8, num_random_mix=3, seed=2
    )
    found = search.search()
    models = found.get_all_evaluated_models()
    assert all(isinstance(model, ArchaiModel) for model in models) and len(found.results) == 4
    assert len({model.archid for model in models}) == len(models) > 8
    rows = list(csv.DictReader((tmp_path / "search_state_4.csv").open()))
    assert list(rows[0]) == [
        "archid",
        "Quality (valid)",
        "params",
        "parent",
        "parents",
        "iteration_num",
        "search_walltime_hours",
        "is_pareto",
    ]
    assert [row["archid"] for row in rows] == [model.archid for model in models]
    assert max(float(row["params"]) for row in rows) <= 80
    assert {row["iteration_num"] for row in rows} == {"0", "1", "2", "3"}
    assert any(row["parent"] for row in rows) and any(row["parents"] for row in rows)
    front = found.get_pareto_frontier()
    assert {row["archid"] for row in rows if row["is_pareto"] == "True"} == {model.archid for model in front["models"]}
    points = [(float(row["Quality (valid)"]), float(row["params"])) for row in rows]
    for at in front["indices"]:
        quality, params = points[at]
        assert not any(q >= quality and p <= params and (q, p) != (quality, params) for q, p in points)
    written = {path.stem for path in (tmp_path / "pareto_models_iter_4").glob("*.json")}
    assert written == {model.archid for model in front["models"]}
    again = EvolutionParetoSearch(
        space(), objectives_of(), tmp_path / "again", num_iters=4, init_num_models=8, num_random_mix=3, seed=2
    ).search()
    assert [model.archid for model in again.get_all_evaluated_models()] == [model.archid for model in models]
    if pytest.importorskip("matplotlib"):
        assert (tmp_path / "pareto_Quality_valid_vs_params.png").stat().st_size > 1000


def test_constraints_that_nothing_meets_are_said(tmp_path: pathlib.Path):
    with pytest.raises(SearchFailed, match="keeps to the constraints"):
        EvolutionParetoSearch(space(), objectives_of(0), tmp_path).search()


PROGRAM = """
    from archai.discrete_search.algos.evolution_pareto import EvolutionParetoSearch
    from archai.discrete_search.api.search_objectives import SearchObjectives
    from archai.discrete_search.evaluators.functional import EvaluationFunction
    from archai.discrete_search.search_spaces.config import (
        ArchConfig, ArchParamTree, ArchConfigSearchSpace, DiscreteChoice, repeat_config,
    )

    tree = ArchParamTree({"width": DiscreteChoice([16, 32, 64]), "depth": DiscreteChoice(list(range(1, 9)))})
    space = ArchConfigSearchSpace(lambda config: (config.pick("width"), config.pick("depth")), tree, seed=3)
    objectives = SearchObjectives()
    loss = EvaluationFunction(lambda model, budget: 1 / (model.arch[0] * model.arch[1]))
    objectives.add_objective("loss", loss, False)
    objectives.add_objective("size", EvaluationFunction(lambda model, budget: model.arch[0]), False)
    found = EvolutionParetoSearch(space, objectives, "out", num_iters=5, init_num_models=6).search()
    print(sorted(model.arch for model in found.get_pareto_frontier()["models"]))
"""


def test_a_program_runs_as_it_is(tmp_path: pathlib.Path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    ran = subprocess.run(
        [sys.executable, "-m", "phalanx.compat", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[(16, 8), (32, 8), (64, 8)]\n"
    # All 24 architectures were tried before the fifth iteration.
    tables = sorted((tmp_path / "out").glob("search_state_*.csv"))
    assert 1 < len(tables) < 5 and len(tables[-1].read_text().splitlines()) == 1 + 24


@pytest.mark.parametrize(
    "name, options, columns",
    [
        ("LocalSearch", {"num_iters": 4, "init_num_models": 6, "mutations_per_parent": 2}, ["parent"]),
        ("RandomSearch", {"num_iters": 4, "samples_per_iter": 5}, []),
        (
            "RegularizedEvolutionSearch",
            {"num_iters": 4, "init_num_models": 6, "pareto_sample_size": 5, "history_size": 8},
            ["parent"],
        ),
    ],
)
def test_other_searches_of_populations(name: str, options: dict, columns: list, tmp_path: pathlib.Path):
    search = getattr(algos, name)
    found = search(space(), objectives_of(), tmp_path, seed=2, **options).search()
    models = found.get_all_evaluated_models()
    assert len({model.archid for model in models}) == len(models) > 8 and len(found.results) == 4
    rows = list(csv.DictReader((tmp_path / "search_state_4.csv").open()))
    objectives = ["Quality (valid)", "params"]
    assert list(rows[0]) == [
        "archid", *objectives, *columns, "iteration_num", "search_walltime_hours", "is_pareto"
    ]  # fmt: skip
    assert max(float(row["params"]) for row in rows) <= 80
    front = found.get_pareto_frontier()["models"]
    assert {path.stem for path in (tmp_path / "pareto_models_iter_4").glob("*.json")} == {m.archid for m in front}
    seen = set()
    for row in rows:
        assert not row.get("parent") or row["parent"] in seen
        seen.add(row["archid"])
    again = search(space(), objectives_of(), tmp_path / "again", seed=2, **options).search()
    assert [model.archid for model in again.get_all_evaluated_models()] == [model.archid for model in models]


def test_the_defaults_are_those_of_the_peer():
    wanted = {
        "EvolutionParetoSearch": {"num_iters": 10, "init_num_models": 10, "num_random_mix": 5, "num_crossovers": 5},
        "LocalSearch": {"num_iters": 10, "init_num_models": 10, "mutations_per_parent": 1},
        "RandomSearch": {"num_iters": 10, "samples_per_iter": 10},
        "RegularizedEvolutionSearch": {"num_iters": 10, "pareto_sample_size": 40, "history_size": 100},
        "MoBananasSearch": {"num_iters": 10, "num_parents": 10, "mutations_per_parent": 5, "num_candidates": 10},
        "SuccessiveHalvingSearch": {"init_num_models": 10, "init_budget": 1.0, "budget_multiplier": 2.0},
    }
    for name, defaults in wanted.items():
        parameters = inspect.signature(getattr(algos, name)).parameters
        assert {each: parameters[each].default for each in defaults} == defaults, name
    ensemble = inspect.signature(PredictiveDNNEnsemble).parameters
    assert [ensemble[name].default for name in ("num_ensemble_members", "num_layers", "width")] == [5, 5, 64]
    assert ensemble["num_tr_steps"].default == 2000


def test_an_ensemble_learns_and_knows_what_it_does_not_know():
    draws = numpy.random.default_rng(0)
    x = draws.uniform(-1, 1, (60, 3))
    y = numpy.stack([x[:, 0] * 2 + x[:, 1] ** 2, -x[:, 2]], axis=1)
    predictor = PredictiveDNNEnsemble(width=32, num_layers=3, lr=3e-3, num_tr_steps=600)
    with pytest.raises(InputError, match="learned nothing"):
        predictor.predict(x)
    predictor.fit(x, y)
    inside = predictor.predict(draws.uniform(-0.9, 0.9, (40, 3)))
    known = predictor.predict(x)
    assert known.mean.shape == known.var.shape == (60, 2)
    assert numpy.abs(known.mean - y).mean() < 0.1
    outside = predictor.predict(draws.uniform(4, 6, (40, 3)))
    assert outside.var.mean() > 10 * inside.var.mean()
    filled = predictor.predict(numpy.array([[math.nan, 0.0, 0.0]]))
    assert numpy.allclose(filled.mean, predictor.predict(numpy.array([[-1.0, 0.0, 0.0]])).mean)


def test_bananas_evaluates_what_is_predicted_to_be_best(tmp_path: pathlib.Path):
    predictor = PredictiveDNNEnsemble(num_ensemble_members=3, num_layers=3, width=16, lr=3e-3, num_tr_steps=200)
    search = MoBananasSearch(
        space(), objectives_of(), tmp_path, predictor, num_iters=4, init_num_models=8, num_candidates=5, seed=2
    )
    found = search.search()
    models = found.get_all_evaluated_models()
    assert 8 < len(models) <= 8 + 3 * 5 and len({model.archid for model in models}) == len(models)
    # Files are counted from 0.
    assert sorted(path.name for path in tmp_path.glob("search_state_*.csv"))[0] == "search_state_0.csv"
    rows = list(csv.DictReader((tmp_path / "search_state_3.csv").open()))
    mean, var = "Predicted Quality (valid) mean", "Predicted Quality (valid) var"
    assert {mean, var} < set(rows[0]) and not any(name.startswith("Predicted params") for name in rows[0])
    assert all((row[mean] == "") == (row["iteration_num"] == "0") for row in rows)
    assert all(float(row[var]) >= 0 for row in rows if row[var])
    assert max(float(row["params"]) for row in rows) <= 80


def test_halving_keeps_the_better_fronts_and_doubles_the_budget(tmp_path: pathlib.Path):
    spent = []

    def quality(model, budget):
        spent.append(budget)
        # No two are equally good.
        return (model.arch.quality + int(model.archid[:6], 16) * 1e-12) * (1 - 1 / (1 + budget))

    objectives = SearchObjectives()
    objectives.add_objective("quality", EvaluationFunction(quality), higher_is_better=True)
    found = SuccessiveHalvingSearch(space(), objectives, None, tmp_path, init_num_models=12).search()
    counts = [len(each["models"]) for each in found.results]
    assert counts[0] == 12 and all(after <= before / 2 for before, after in zip(counts, counts[1:]))
    assert [each["budget"][0] for each in found.results] == [2.0**at for at in range(len(counts))]
    assert set(spent) == {2.0**at for at in range(len(counts))}
    first = found.results[0]
    best = first["archid"][int(numpy.argmax(first["quality"]))]
    final = space().load_arch(str(tmp_path / "final_model"))
    assert final.archid == best
    rows = list(csv.DictReader((tmp_path / f"search_state_{len(counts) - 1}.csv").open()))
    assert rows[0]["budget"] == "1.0" and len(rows) == sum(counts)
    assert len(list((tmp_path / "models_iter_0").glob("*.json"))) == 12
    with pytest.raises(InputError, match="above 1"):
        SuccessiveHalvingSearch(space(), objectives, None, tmp_path, budget_multiplier=1.0)


def test_training_goes_on_where_it_was():
    calls = []

    def train(model, dataset, budget, state):
        calls.append((model.archid, dataset, budget, state))
        return model, float(budget), {"steps": (state or {"steps": 0})["steps"] + budget}

    own = space()
    evaluator = ProgressiveTraining(own, "data", train)
    model, other = own.random_sample(), own.random_sample()
    assert [evaluator.evaluate(each, budget) for each, budget in ((model, 1), (other, 1), (model, 2))] == [1, 1, 2]
    assert [call[3] for call in calls] == [None, None, {"steps": 1}]
    assert evaluator.training_states[model.archid] == {"steps": 3} and calls[0][1] == "data"


def linear_model() -> ArchaiModel:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(1, 4, 3, padding=1)
    net = torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 8 * 8, 10))
    return ArchaiModel(net, "net")


def test_parameters_operations_and_latency_of_torch_modules():
    torch = pytest.importorskip("torch")
    model, x = linear_model(), torch.randn(1, 1, 8, 8)
    assert TorchNumParameters().evaluate(model) == 4 * 9 + 4 + 256 * 10 + 10
    assert TorchNumParameters(exclude_cls=[torch.nn.Linear]).evaluate(model) == 40
    model.arch[0].requires_grad_(False)
    assert TorchNumParameters().evaluate(model) == 2570
    assert TorchNumParameters(trainable_only=False).evaluate(model) == 2610
    products = 64 * 4 * 9 + 256 * 10
    assert TorchMacs(x).evaluate(model) == products and TorchFlops([x]).evaluate(model) == 2 * products
    assert TorchFlops(x, ignore_layers=["Linear"]).evaluate(model) == 2 * 64 * 4 * 9
    assert model.arch.training
    assert 0 < TorchLatency(x, num_warmups=1, num_samples=3, use_median=True).evaluate(model) < PATIENCE
    with pytest.raises(InputError, match="nothing to call"):
        TorchFlops()


def test_the_latency_of_onnx_files():
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    model = linear_model()
    assert 0 < AvgOnnxLatency((1, 1, 8, 8), num_trials=3).evaluate(model) < PATIENCE
    assert model.arch.training
    with pytest.raises(InputError, match="no device"):
        AvgOnnxLatency((1, 1, 8, 8), device="tpu")


class Slow(ModelEvaluator):
    """Takes its time with some models, and fails with others."""

    def evaluate(self, arch, budget=None):
        if arch.arch == "slow":
            time.sleep(600)
        if arch.arch == "bad":
            raise ValueError("no such layer")
        return float(len(arch.arch)) + (budget or 0)


def models_of(*words: str) -> list:
    return [ArchaiModel(word, word) for word in words]


def test_models_are_evaluated_by_an_executor():
    with ThreadPoolExecutor(2) as executor:
        evaluator = NodesEvaluator(Slow(), executor=executor)
        for model, budget in zip(models_of("a", "bad", "abc"), (None, None, 2)):
            evaluator.send(model, budget)
        assert evaluator.fetch_all() == [1.0, None, 5.0] and evaluator.fetch_all() == []
    with pytest.raises(InputError, match="say one of them"):
        NodesEvaluator(Slow(), "lab", local=2)
    with pytest.raises(InputError, match="num_gpus"):
        RayParallelEvaluator(Slow(), num_gpus=1)


def test_models_are_evaluated_on_nodes():
    evaluator = NodesEvaluator(Slow(), local=2)
    try:
        objectives = SearchObjectives()
        objectives.add_objective("length", evaluator, higher_is_better=True)
        values = objectives.eval_all_objs(models_of("a", "bad", "abc"), {"length": 2.0})["length"]
        assert list(values[[0, 2]]) == [3.0, 5.0] and math.isnan(values[1])
        evaluator.timeout, evaluator.force_stop = 3.0, True
        for model in models_of("slow", "slow"):
            evaluator.send(model)
        assert evaluator.fetch_all() == [None, None]
        evaluator.timeout = PATIENCE
        # The nodes are free again.
        evaluator.send(models_of("ab")[0])
        assert evaluator.fetch_all() == [2.0]
    finally:
        evaluator.close()
