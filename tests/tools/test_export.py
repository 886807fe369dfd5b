"""pandas and pyarrow read exported metrics."""

import pandas
import pyarrow.parquet
import pytest


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.parquet"])
def test_two_runs_are_one_table(runs, name):
    runs.train("first")
    runs.train("second", 'epochs = 1\noptimizer = { name = "sgd", lr = 0.1 }')
    runs.phalanx("run", "export", "first", "second", "--to", name)
    path = runs.directory / name
    table = pandas.read_csv(path) if name.endswith("csv") else pandas.read_parquet(path)
    assert table["run"].value_counts().to_dict() == {"first": 34, "second": 17}
    assert (table["unix_ms"] > 1_700_000_000_000).all()
    for run in ("first", "second"):
        own = table[table["run"] == run]
        for metric, points in runs.metrics(run).items():
            values = own[["step", metric]].dropna()
            assert values["step"].tolist() == [step for step, _ in points], metric
            assert values[metric].tolist() == pytest.approx([value for _, value in points], rel=1e-12), metric


def test_parquet_has_types(runs):
    runs.train("first", "epochs = 1")
    runs.phalanx("run", "export", "first", "--to", "m.parquet")
    schema = pyarrow.parquet.read_schema(runs.directory / "m.parquet")
    assert [str(schema.field(name).type) for name in ("run", "step", "loss")] == ["string", "int64", "double"]
