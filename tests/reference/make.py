"""Makes the reference files of the tests of the engine and of the ONNX importer.

    python -m venv target/venv/torch
    target/venv/torch/bin/pip install -r tests/reference/requirements.txt
    target/venv/torch/bin/python tests/reference/make.py [--only PATTERN]

PATTERN is a shell pattern such as `ops/conv2d*` or `models/gpt*`, or a group such as `ops/shape` for `cases/shape.py`.
The committed files were made with the versions in requirements.txt; see README.md for what they hold.
The random numbers and the rules by which weights are made are in generator.py.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="make only the files that fit this pattern")
    only = parser.parse_args().only
    failures = []
    if not only or only.startswith(("ops", "*")):
        import ops

        failures += ops.make(os.path.join(HERE, "ops"), only)
    if not only or only.startswith(("models", "*")):
        import models

        failures += models.make(os.path.join(HERE, "models"), only)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
