"""Programs that were written for Archai's discrete search."""

from __future__ import annotations

import csv
import json
import math
import pathlib
import subprocess
import sys
import textwrap

import pytest

from phalanx.compat.archai.discrete_search.algos import EvolutionParetoSearch
from phalanx.compat.archai.discrete_search.api import ArchaiModel, AsyncModelEvaluator, SearchObjectives
from phalanx.compat.archai.discrete_search.evaluators import EvaluationFunction
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
