"""Checks the installed package: types, stubs, tests.

Run it with the Python of a virtual environment that has the package and its extra `test`:

    pip install '.[test]' && python python/check.py

Torch and matplotlib are tested where they are installed. Tests run from a copy, so that the installed package is
tested and not the folder beside them.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="phalanx-check-") as folder:
        copy = pathlib.Path(folder)
        shutil.copytree(ROOT / "python" / "tests", copy / "python" / "tests")
        (copy / "docs").mkdir()
        for page in ("python.md", "coming-from.md", "search-python.md"):
            shutil.copy(ROOT / "docs" / page, copy / "docs")
        shutil.copytree(ROOT / "examples", copy / "examples")
        shutil.copy(ROOT / "pyproject.toml", copy)
        config = str(copy / "pyproject.toml")
        checks = [
            ["mypy", "--config-file", config, "-p", "phalanx"],
            ["mypy.stubtest", "phalanx._phalanx", "--mypy-config-file", config],
            ["pytest", "-q", "-c", config, "--rootdir", folder, str(copy / "python" / "tests")],
        ]
        failed = [check[0] for check in checks if run(check, copy) != 0]
    print("failed: " + ", ".join(failed) if failed else "all checks passed")
    return 1 if failed else 0


def run(check: list[str], folder: pathlib.Path) -> int:
    print(f"== {check[0]}", flush=True)
    return subprocess.run([sys.executable, "-m", *check], cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
