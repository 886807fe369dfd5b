"""Searches with the samplers of others on the tables and formulas of `crates/search/examples/quality`.

    python3 -m venv target/venv-search
    target/venv-search/bin/python -m pip install numpy pymoo optuna nas-bench-graph==1.4.0
    target/venv-search/bin/python xtask/bench/search_tables.py tables DIRECTORY
    target/venv-search/bin/python xtask/bench/search_tables.py peers DIRECTORY [--problems …] [--seeds 10] > peers.jsonl

`tables` writes a CSV per data set of NAS-Bench-Graph: the five genes of an architecture (how its four operators are
linked, and which they are), then validation error, latency and parameters, then a key that is equal for architectures
that are the same network. Of the package's pickles only numbers and dictionaries of them are read.

`peers` runs pymoo's NSGA-II (populations 20 and 100, its default), Optuna's NSGA-II (populations 20 and 50, its default)
and Optuna's multivariate TPE, each on one worker. Only distinct networks count: what was tried before, under the same or
under other genes, is answered from memory. A sampler that proposes nothing new for a long time is stopped. Ordered genes are whole numbers,
others categories. A line of JSON per problem and sampler has the share of the true hypervolume per seed.
"""

import argparse
import csv
import itertools
import json
import math
import pathlib
import pickle
import sys
import time
import warnings

import numpy

SETS = ("cora", "citeseer", "pubmed", "cs", "physics", "photo", "computers", "arxiv")
STEPS = 21
REFERENCE = 1.1


class Numbers(pickle.Unpickler):
    """Reads dictionaries of numbers, of Python and of NumPy; anything else is refused before it is made."""

    def find_class(self, module, name):
        if (module, name) == ("numpy.core.multiarray", "scalar"):
            return lambda kind, data: numpy.frombuffer(data, kind)[0]
        if (module, name) == ("numpy", "dtype"):
            return numpy.dtype
        raise pickle.UnpicklingError(f"{module}.{name} is not a number")


def write_tables(directory):
    import nas_bench_graph.architecture as graph

    directory.mkdir(parents=True, exist_ok=True)
    data = pathlib.Path(graph.__file__).parent / "light"
    keys = [
        (link, operators, graph.Arch(list(link), list(operators)).valid_hash())
        for link in graph.link_list
        for operators in itertools.product(graph.gnn_list, repeat=4)
    ]
    for name in SETS:
        with open(data / f"{name}.bench", "rb") as file:
            known = Numbers(file).load()
        with open(directory / f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["link", "op1", "op2", "op3", "op4", "min:error", "min:latency", "min:parameters", "id:network"])
            for link, operators, key in keys:
                if found := known.get(key):
                    values = [1 - found["valid_perf"], found["latency"], found["para"]]
                    table.writerow(["l" + "".join(map(str, link)), *operators, *map(float, values), key])


# What follows is the same as `problem.rs`.


class Problem:
    """Genes are numbers of choices; `ordered` says which are whole numbers for a sampler."""

    def share(self, values):
        points = (numpy.asarray(values) - self.low) / (self.high - self.low)
        return volume(points, REFERENCE) / self.true

    def finish(self, best):
        self.true = 1.0
        self.true = self.share(best)


class Formula(Problem):
    def __init__(self, name):
        self.name = name
        genes, self.low, self.high = {
            "zdt1": (30, [0, 0], [1, 1]),
            "zdt2": (30, [0, 0], [1, 1]),
            "zdt3": (30, [0, -0.773369012], [0.851832865, 1]),
            "dtlz2": (12, [0, 0, 0], [1, 1, 1]),
        }[name]
        self.low, self.high = numpy.array(self.low, float), numpy.array(self.high, float)
        self.choices, self.ordered = [STEPS] * genes, [True] * genes
        positions, optimum = len(self.low) - 1, STEPS // 2 if name == "dtlz2" else 0
        rest = (optimum,) * (genes - positions)
        self.finish([self(at + rest) for at in itertools.product(range(STEPS), repeat=positions)])

    def __call__(self, genes):
        x = numpy.array(genes) / (STEPS - 1)
        if self.name == "dtlz2":
            radius = 1 + ((x[2:] - 0.5) ** 2).sum()
            a, b = x[0] * math.pi / 2, x[1] * math.pi / 2
            return [radius * math.cos(a) * math.cos(b), radius * math.cos(a) * math.sin(b), radius * math.sin(a)]
        g = 1 + 9 * x[1:].sum() / (len(x) - 1)
        shape = {
            "zdt1": 1 - math.sqrt(x[0] / g),
            "zdt2": 1 - (x[0] / g) ** 2,
            "zdt3": 1 - math.sqrt(x[0] / g) - x[0] / g * math.sin(10 * math.pi * x[0]),
        }[self.name]
        return [x[0], g * shape]


class Table(Problem):
    def __init__(self, path, objectives):
        self.name = path.stem
        with open(path, newline="") as file:
            header, *rows = csv.reader(file)
        genes = [column for column, name in enumerate(header) if ":" not in name]
        values = [header.index(name) for name in objectives]
        labels = [sorted({row[column] for row in rows}) for column in genes]
        self.choices, self.ordered = [len(choices) for choices in labels], [False] * len(genes)
        index = [{label: number for number, label in enumerate(choices)} for choices in labels]
        self.table = {
            tuple(places[row[column]] for places, column in zip(index, genes)): [float(row[v]) for v in values]
            for row in rows
        }
        everything = numpy.array(list(self.table.values()))
        self.low, self.high = everything.min(0), everything.max(0)
        self.finish(everything)
        same = header.index("id:network")
        self.networks = {
            tuple(places[row[column]] for places, column in zip(index, genes)): row[same] for row in rows
        }

    def __call__(self, genes):
        return self.table.get(tuple(genes))


def volume(points, reference):
    """By slices along the last objective."""
    points = points[(points < reference).all(axis=1)]
    points = points[numpy.lexsort(points.T)]
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return reference - points[:, 0].min()
    if points.shape[1] == 2:
        least, total = reference, 0.0
        for x, y in points:
            if x < least:
                total += (least - x) * (reference - y)
                least = x
        return total
    ends = numpy.append(points[1:, -1], reference)
    total, begun = 0.0, numpy.empty((0, points.shape[1] - 1))
    for point, end in zip(points, ends):
        if not (begun <= point[:-1]).all(axis=1).any():
            begun = numpy.vstack([begun[~(begun >= point[:-1]).all(axis=1)], point[:-1]])
        if end > point[-1]:
            total += (end - point[-1]) * volume(begun, reference)
    return total


class Trials:
    """Answers a sampler and counts what is new. What a table does not have is worse than everything."""

    def __init__(self, problem, wanted):
        self.problem, self.wanted = problem, wanted
        self.known, self.values, self.asked = {}, [], 0

    def __call__(self, genes):
        self.asked += 1
        genes = tuple(map(int, genes))
        network = getattr(self.problem, "networks", {}).get(genes, genes)
        if network not in self.known:
            found = self.problem(genes)
            self.known[network] = found or list(self.problem.high * 2)
            if found is not None:
                self.values.append(found)
        return self.known[network]

    def done(self):
        return len(self.values) >= self.wanted or self.asked >= 20 * self.wanted


def pymoo(population):
    def run(problem, trials, seed):
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.mixed import MixedVariableDuplicateElimination, MixedVariableMating
        from pymoo.core.mixed import MixedVariableSampling
        from pymoo.core.problem import ElementwiseProblem
        from pymoo.core.variable import Choice, Integer

        class Asked(ElementwiseProblem):
            def __init__(self):
                kinds = zip(problem.choices, problem.ordered)
                genes = {
                    f"g{i:02}": Integer(bounds=(0, n - 1)) if ordered else Choice(options=list(range(n)))
                    for i, (n, ordered) in enumerate(kinds)
                }
                super().__init__(vars=genes, n_obj=len(problem.low))

            def _evaluate(self, genes, out, *args, **kwargs):
                done = trials.done()
                out["F"] = list(problem.high * 2) if done else trials([genes[k] for k in sorted(genes)])

        duplicates = MixedVariableDuplicateElimination()
        algorithm = NSGA2(
            pop_size=population,
            sampling=MixedVariableSampling(),
            mating=MixedVariableMating(eliminate_duplicates=duplicates),
            eliminate_duplicates=duplicates,
        )
        algorithm.setup(Asked(), seed=seed, termination=("n_gen", 100_000), verbose=False)
        while algorithm.has_next() and not trials.done():
            algorithm.next()

    return run


def optuna(make):
    def run(problem, trials, seed):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(directions=["minimize"] * len(problem.low), sampler=make(optuna.samplers, seed))
        while not trials.done():
            trial = study.ask()
            genes = [
                trial.suggest_int(f"g{i}", 0, n - 1)
                if ordered
                else trial.suggest_categorical(f"g{i}", list(range(n)))
                for i, (n, ordered) in enumerate(zip(problem.choices, problem.ordered))
            ]
            study.tell(trial, trials(genes))

    return run


SAMPLERS = {
    "pymoo_nsga2_20": pymoo(20),
    "pymoo_nsga2_100": pymoo(100),
    "optuna_nsga2_20": optuna(lambda of, seed: of.NSGAIISampler(seed=seed, population_size=20)),
    "optuna_nsga2_50": optuna(lambda of, seed: of.NSGAIISampler(seed=seed)),
    "optuna_tpe": optuna(lambda of, seed: of.TPESampler(seed=seed, multivariate=True)),
}


def run_peers(options):
    warnings.filterwarnings("ignore")
    for name in options.problems:
        path = options.directory / f"{name}.csv"
        problem = Table(path, options.objectives) if path.exists() else Formula(name)
        for sampler in options.samplers:
            shares, began = [[] for _ in options.evaluations], time.perf_counter()
            for seed in range(options.seeds):
                trials = Trials(problem, max(options.evaluations))
                SAMPLERS[sampler](problem, trials, seed)
                for column, evaluations in zip(shares, options.evaluations):
                    column.append(problem.share(trials.values[:evaluations]))
            seconds = (time.perf_counter() - began) / options.seeds
            line = {"problem": name, "algorithm": sampler, "evaluations": options.evaluations, "first_seed": 0}
            print(json.dumps(line | {"shares": shares, "seconds": seconds}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tables", "peers"))
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--problems", nargs="+", default=[*SETS, "zdt1", "zdt2", "zdt3", "dtlz2"])
    parser.add_argument("--objectives", nargs="+", default=["min:error", "min:latency"])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, nargs="+", default=[100, 300])
    options = parser.parse_args()
    if options.what == "tables":
        write_tables(options.directory)
    else:
        run_peers(options)


if __name__ == "__main__":
    sys.exit(main())
