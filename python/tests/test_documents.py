"""Every example of docs/python.md, docs/coming-from.md, docs/search-python.md and the docstrings runs as it is written."""

import doctest
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
DOCUMENT = DOCS / "python.md"
SEARCHES = DOCS / "search-python.md"
COMING_FROM = DOCS / "coming-from.md"
MODULES = [
    "phalanx",
    "phalanx.errors",
    "phalanx.jobs",
    "phalanx.compat._serve",
    "phalanx._settings",
    "phalanx._nodes",
    "phalanx._plan",
    "phalanx._fit",
    "phalanx._executor",
]
MODULES += ["phalanx._elastic", "phalanx.numpy", "phalanx.store", "phalanx._dataset"]
MODULES += ["phalanx.search", "phalanx._search_space"]
MODULES += ["phalanx.compat.smartredis.configoptions", "phalanx.compat.smartsim.ml._passes"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    extra = {}
    if name == "phalanx":
        # Lazy members are not found by themselves.
        extra = {"phalanx": module}
    found = doctest.testmod(module, extraglobs=extra)
    assert found.attempted > 0 and found.failed == 0


def blocks(document=DOCUMENT):
    """The Python examples, which follow on each other as in one session; those of torch are marked by their import."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", [DOCUMENT, SEARCHES])
def test_examples_of_the_document_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    ran = 0
    for text in blocks(document):
        if "torch" in text:
            continue
        exec(compile(text, str(document), "exec"), names)
        ran += 1
    assert ran >= 4


@pytest.mark.parametrize("document", [DOCUMENT, SEARCHES])
def test_torch_examples_of_the_document_run(document, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names = {}
    texts = [text for text in blocks(document) if "torch" in text]
    for text in texts:
        exec(compile(text, str(document), "exec"), names)
    assert texts


def test_examples_for_those_who_come_from_another_tool_run(tmp_path):
    texts = [text for text in blocks(COMING_FROM) if "\n\n" in text]
    assert texts
    for number, text in enumerate(texts):
        file = tmp_path / f"example_{number}.py"
        file.write_text(text)
        ran = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0 and ran.stdout, ran.stderr
