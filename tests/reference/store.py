"""Writes safetensors that are the same, byte by byte, each time they are made."""

import json
import os

from safetensors.torch import save_file


def save(tensors, path, metadata):
    save_file(tensors, path, metadata)
    settle(path)


def settle(path):
    """Sorts the metadata, which save_file writes in a random order."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header, data = json.loads(file.read(size)), file.read()
    metadata = header.pop("__metadata__", {})
    header = {"__metadata__": dict(sorted(metadata.items())), **header}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    os.chmod(path, 0o644)
