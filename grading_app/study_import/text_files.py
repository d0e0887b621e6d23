"""Text files of studies: JSON, JSON lines and YAML, read within limits. Errors name the file and the line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evalsite.lib.text.strict_yaml import YamlError, parse_yaml
from grading_app.study_import.study import StudyError

LARGEST_TEXT = 10 * 2**20  # Bytes of a file that people write: prompts, configurations.
LARGEST_JSON = 256 * 2**20  # Bytes of a file that is parsed as a whole.
LONGEST_LINE = 5_000_000  # Characters.
YAML = (".yaml", ".yml")


def find_files(path: Path, *suffixes: str) -> list[Path]:
    """Return the file if its name ends with a suffix, or all such files in the folder, sorted by their paths."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in files if file.name.lower().endswith(suffixes) and file.is_file()]


def read_text(file: Path) -> str:
    """Return the text of a small file. Raise StudyError for a large one, or for bytes that are not UTF-8."""
    if file.stat().st_size > LARGEST_TEXT:
        raise StudyError([f"{file.name}: larger than {LARGEST_TEXT // 2**20} MB"])
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeError as error:
        raise StudyError([f"{file.name}: {error}"]) from error


def parse_json(content: bytes, where: str) -> dict[str, Any]:
    """Return a JSON object. Raise StudyError for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StudyError([f"{where}: not complete JSON; copy the file again ({error})"]) from error
    if not isinstance(value, dict):
        raise StudyError([f"{where}: not an object"])
    return value


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raise StudyError for anything else, or for a large file."""
    if file.stat().st_size > LARGEST_JSON:
        raise StudyError([f"{file.name}: larger than {LARGEST_JSON // 2**20} MB"])
    return parse_json(file.read_bytes(), file.name)


def read_json_list(file: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file with a list. Raise StudyError for anything else, or for a large file."""
    if file.stat().st_size > LARGEST_JSON:
        raise StudyError([f"{file.name}: larger than {LARGEST_JSON // 2**20} MB"])
    rows = parse_json(b'{"rows": ' + file.read_bytes() + b"}", file.name)["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise StudyError([f"{file.name}: not a list of objects"])
    return rows


def number_objects(values: Iterable[Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each value with its place, such as `results.json, result 2`. Raise StudyError if one is no object."""
    for number, value in enumerate(values, start=1):
        where = f"{place} {number}"
        if not isinstance(value, dict):
            raise StudyError([f"{where}: not an object"])
        yield where, value


def read_lines(file: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield each line that is not blank with its place and its offset in bytes. A line without JSON is None.

    A place is such as `step.ndjson, line 2`. `read_objects_at` reads a line again by its offset.
    """
    offset = 0
    with file.open("rb") as lines:
        # A character has at most four bytes.
        for number, line in enumerate(iter(partial(lines.readline, 4 * LONGEST_LINE + 1), b""), start=1):
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
            if len(text) > LONGEST_LINE:
                raise StudyError([f"{file.name}, line {number}: longer than {LONGEST_LINE:,} characters"])
            if text.strip():
                try:
                    value = json.loads(text)
                except (ValueError, RecursionError):
                    value = None
                yield f"{file.name}, line {number}", offset, value
            offset += len(line)


def read_objects(files: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line with its place. Raise StudyError for a line that is no object."""
    for file in files:
        yield from ((where, row) for where, (_, row) in read_placed_objects(file))


def read_placed_objects(file: Path) -> Iterator[tuple[str, tuple[int, dict[str, Any]]]]:
    """Yield the offset and the object of each line, with its place. Raise StudyError for a line that is no object."""
    for where, offset, value in read_lines(file):
        if not isinstance(value, dict):
            raise StudyError([f"{where}: not a JSON object"])
        yield where, (offset, value)


def read_objects_at(file: Path, offsets: Iterable[int]) -> list[dict[str, Any]]:
    """Return the objects of the lines that start at these offsets."""
    rows = []
    with file.open("rb") as lines:
        for offset in offsets:
            lines.seek(offset)
            rows.append(json.loads(lines.readline().decode("utf-8-sig", errors="replace")))
    return rows


def read_first_object(file: Path) -> Mapping[str, Any]:
    """Return the first line if it is a JSON object, else an empty mapping: to recognise a format."""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        line = lines.readline(LONGEST_LINE)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_yaml_files(path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the YAML file, or each one in the folder, if it is a mapping. Raise StudyError for bad YAML."""
    for file in find_files(path, *YAML):
        try:
            content = parse_yaml(read_text(file).removeprefix("\ufeff"))
        except YamlError as error:
            raise StudyError([f"{file.name}: {error}"]) from error
        if isinstance(content, dict):
            yield file, content
