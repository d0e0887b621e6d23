"""Parsing of files in YAML or JSON that people write: with limits, without aliases and without duplicate keys."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any

import yaml

MAX_CHARS = 1_000_000
MAX_NODES = 20_000  # YAML scalars, lists and mappings. The parser takes about 0.1 ms for each.


class YamlError(ValueError):
    """A text that is not YAML or JSON, or is too large. The message is a sentence for the file's author."""


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML or JSON text. Raise FileError."""
    if len(text) > MAX_CHARS:
        raise YamlError(f"the file has {len(text):,} characters; at most {MAX_CHARS:,} are read")
    try:
        return _parse(text)
    except yaml.YAMLError as error:
        raise YamlError(f"this is not YAML: {' '.join(str(error).split())}") from None
    except (RecursionError, ValueError) as error:
        raise YamlError(f"this cannot be read: {type(error).__name__}") from None


def join_path(steps: Sequence[str | int]) -> str:
    """Return the path of ("prompts", 1, "user") as `prompts[1].user`."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")


def _parse(text: str) -> Any:
    """Parse JSON as JSON. YAML looks like a superset of JSON, but it folds some characters of texts."""
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader, with aliases refused


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise yaml.YAMLError(f"a key occurs twice in the mapping that starts with {pairs[0][0]}")
    return mapping


class _Loader(yaml.SafeLoader):
    """A YAML loader without aliases, which can expand a few lines to gigabytes, and without duplicate keys."""

    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise yaml.YAMLError(f"more than {MAX_NODES:,} values are not read; write a file this large as JSON")
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError(f"a key occurs twice in the mapping that starts in line {node.start_mark.line + 1}")
        return mapping
