"""TensorFlow on ranks that the launcher starts. Runs alone with an interpreter that has TensorFlow:

    python -m pytest python/tests/test_ops_tensorflow.py
"""

from __future__ import annotations

import importlib.util

import pytest
from launching import launch

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)


def test_two_ranks_learn_as_one_with_the_double_batch() -> None:
    assert launch(2, "with_tensorflow.py").stdout.count("done") == 2
