"""TensorFlow on ranks that the launcher starts. Runs alone with an interpreter that has TensorFlow:

    python -m pytest python/tests/test_ops_tensorflow.py
"""

from __future__ import annotations

import importlib.util
import pathlib

import pytest
from launching import launch

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)


def test_two_ranks_learn_as_one_with_the_double_batch() -> None:
    assert launch(2, "with_tensorflow.py").stdout.count("done") == 2


def test_elastic_training_goes_on_from_the_last_commit(tmp_path: pathlib.Path) -> None:
    said = launch(2, "elastic_tensorflow.py", tmp_path, options=("--min", "1")).stdout
    assert said.count("resets [2]") == 1 and said.count("resets []") == 1
