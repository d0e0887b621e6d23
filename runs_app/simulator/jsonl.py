"""A reader of JSONL input files of the simulated provider."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs_app.simulator.config import ConfigError


def read_rows(path: Path, keys: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (location, row) for each line that is not blank. The location names file and line for messages.

    Raise ConfigError for a missing file, a line without a JSON object, or a key outside `keys`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}:{number}", _parse_row(line, f"{path}:{number}", keys)


def _parse_row(line: str, location: str, keys: frozenset[str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{location}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{location}: not a JSON object")
    unknown = sorted(row.keys() - keys)
    if unknown:
        raise ConfigError(f"{location}: unknown key {unknown[0]!r}; valid keys: {', '.join(sorted(keys))}")
    return row
