"""What was chosen, as a model sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set, Union

from phalanx.errors import InputError

__all__ = ["ArchConfig", "ArchConfigList", "build_arch_config"]


class ArchConfig:
    """Values by name. ``pick`` gives one and notes that the model uses it."""

    def __init__(self, config_dict: Dict[str, Any]) -> None:
        self.nodes: Dict[str, Any] = {
            name: build_arch_config(value) if isinstance(value, dict) else value for name, value in config_dict.items()
        }
        self._used: Set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()!r})"

    def pick(self, param_name: str, record_usage: bool = True) -> Any:
        """The value of a parameter, or the block of this name."""
        if param_name not in self.nodes:
            has = ", ".join(name for name in self.nodes if not name.startswith("_"))
            raise KeyError(f"there is no parameter {param_name!r}; there are {has}")
        if record_usage:
            self._used.add(param_name)
        return self.nodes[param_name]

    def get_used_params(self) -> Dict[str, Any]:
        """Of each parameter whether it was used; of each block the same again."""
        return {
            name: value.get_used_params() if isinstance(value, ArchConfig) else name in self._used
            for name, value in self.nodes.items()
        }

    def to_dict(self, remove_metadata_info: bool = False) -> Dict[str, Any]:
        """Plain dicts; without names that begin with ``_`` if these are not wanted."""
        return {
            name: value.to_dict(remove_metadata_info) if isinstance(value, ArchConfig) else value
            for name, value in self.nodes.items()
            if not (remove_metadata_info and name.startswith("_"))
        }

    def to_file(self, path: Union[str, Path]) -> None:
        """Writes JSON."""
        path = Path(path)
        if path.suffix != ".json":
            path = path.with_name(path.name + ".json")
        path.write_text(json.dumps(self.to_dict(), indent=4), encoding="utf-8")

    @classmethod
    def from_file(cls, path: Union[str, Path]) -> "ArchConfig":
        """Reads what ``to_file`` wrote."""
        path = Path(path)
        if path.suffix != ".json":
            path = path.with_name(path.name + ".json")
        return build_arch_config(json.loads(path.read_text(encoding="utf-8")))


class ArchConfigList(ArchConfig):
    """Blocks that are repeated, as a list."""

    def _block(self, at: int) -> ArchConfig:
        block: Optional[ArchConfig] = self.nodes["_configs"].nodes.get(str(at))
        if block is None:
            raise InputError(f"there is no block {at}")
        return block

    def __len__(self) -> int:
        return int(self.pick("_repeat_times"))

    def __getitem__(self, at: int) -> ArchConfig:
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} blocks, and no block {at}")
        return self._block(at)

    def __iter__(self) -> Iterator[ArchConfig]:
        return (self[at] for at in range(len(self)))

    def to_dict(self, remove_metadata_info: bool = False) -> Any:
        if remove_metadata_info:
            return [self._block(at).to_dict(True) for at in range(int(self.nodes["_repeat_times"]))]
        return super().to_dict()


def build_arch_config(config_dict: Dict[str, Any]) -> ArchConfig:
    """The configuration that a dict holds."""
    is_list = config_dict.get("_config_type") == "config_list"
    return ArchConfigList(config_dict) if is_list else ArchConfig(config_dict)
