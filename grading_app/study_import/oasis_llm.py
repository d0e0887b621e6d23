"""OASIS-LLM: trials as CSV, with the image set and its human means in another CSV of the same folder.

Files are known by their columns, not by their names. The text of the prompt is in `prompt_template.md` if at all.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import TypeVar

from grading_app.study_import.study import (
    MAX_PROBLEMS,
    HumanNorm,
    Study,
    StudyCondition,
    StudyDimension,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
    separate_equal,
)

T = TypeVar("T")
Row = dict[str, str]
Rows = Iterator[tuple[str, Row]]
TOOL = "oasis-llm"
TRIAL_COLUMNS = {"run_id", "image_id", "dimension", "sample_idx", "status", "rating"}
RECOGNISED_BY = {"run_id", "image_id"}  # Both columns are in trials alone; a missing column is then an error.
MODEL_COLUMNS = {"run_id", "provider", "model_id"}  # Of `models.csv`.
DIMENSIONS = ("valence", "arousal")
LOW, HIGH = 1, 7  # The scale of every study of this tool.
REFUSALS = ("inappropriate content", "DataInspectionFailed", "content_policy", "content policy", "safety")
NOTES = (
    "The images are not in the files: items hold their names.",
    "Times have no zone in the files: they are taken as UTC.",
)
NO_PROMPT = "The prompt's text is not in the files; conditions hold a placeholder."


def is_oasis_llm(path: Path) -> bool:
    return any(_read_columns(file) >= RECOGNISED_BY for file in _find_csv_files(path))


def read_oasis_llm(path: Path) -> Study:
    """Return the study of a folder, or of a file of trials with the image set beside it.

    Raise StudyError for rows that cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    columns = {file: _read_columns(file) for file in _find_csv_files(path)}
    trial_files = [file for file, names in columns.items() if names >= RECOGNISED_BY]
    if not trial_files:
        raise StudyError([f"{path.name}: no CSV file with the columns {', '.join(sorted(TRIAL_COLUMNS))}"])
    absent = {file.name: ", ".join(sorted(TRIAL_COLUMNS - columns[file])) for file in trial_files}
    if problems := [f"{name}: the header has no column {names}" for name, names in absent.items() if names]:
        raise StudyError(problems)
    rows = partial(_read_files, trial_files)
    facts = check_rows(rows())
    template = next(iter(sorted(folder.rglob("prompt_template.md"))), None)
    messages = ({"role": "user", "content": template.read_text(encoding="utf-8")},) if template else ()
    models = {row["run_id"]: row for file in columns if columns[file] >= MODEL_COLUMNS for _, row in _read_rows(file)}
    conditions, separation_notes = separate_equal([
        StudyCondition(
            run, model, models.get(run, {}).get("model_id") or model, models.get(run, {}).get("provider", ""),
            prompt="oasis-llm-rating", messages=messages,
        )
        for run, model in facts.models.items()
    ])  # fmt: skip
    items, norm_notes = find_items(folder, facts.images)
    return Study(
        name=path.stem if path.is_file() else path.name,
        tool=TOOL,
        items=items,
        conditions=conditions,
        trials=partial(read_trials, rows),
        dimensions=[StudyDimension(name, LOW, HIGH) for name in sorted(facts.dimensions)],
        notes=[*NOTES, *([] if template else [NO_PROMPT]), *norm_notes, *facts.notes, *separation_notes],
    )


@dataclass
class TrialFacts:
    """The models by run, images and dimensions that the rows of trials name."""

    models: dict[str, str] = field(default_factory=dict)
    images: dict[str, None] = field(default_factory=dict)
    dimensions: set[str] = field(default_factory=set)
    unanswered: int = 0

    @property
    def notes(self) -> list[str]:
        return [f"{self.unanswered} trials without an outcome (pending or running) are left out."] * bool(
            self.unanswered
        )


def check_rows(rows: Rows) -> TrialFacts:
    """Return the facts that the rows name. Raise StudyError with the problems of all rows."""
    facts = TrialFacts()
    problems: list[str] = []
    for where, row in rows:
        _check(where, row, problems)
        if len(problems) > 10 * MAX_PROBLEMS:
            break
        facts.models.setdefault(row["run_id"], row.get("model") or row["run_id"].rpartition("__")[2])
        facts.images.setdefault(row["image_id"])
        facts.dimensions.add(row["dimension"])
        facts.unanswered += row["status"] in ("pending", "running")
    if problems:
        raise StudyError(problems)
    return facts


def find_items(folder: Path, images: Iterable[str]) -> tuple[list[StudyItem], list[str]]:
    """Return the items of the images, with norms and categories from CSV files of the folder, and notes."""
    problems: list[str] = []
    norms: dict[str, StudyItem] = {}
    for file in _find_csv_files(folder):
        for item in _read_items_with_norms(file, problems):
            if len(item.norms) >= len(norms.get(item.key, item).norms):
                norms[item.key] = item
    if problems:
        raise StudyError(problems)
    items_by_stripped_key = {key.strip(): item for key, item in norms.items()}  # Two published names end in a blank.
    items_by_image = {key: norms.get(key) or items_by_stripped_key.get(key.strip()) for key in images}
    without = sum(item is None for item in items_by_image.values())
    items = [
        replace(item, key=key, input=key) if item else StudyItem(key, input=key) for key, item in items_by_image.items()
    ]
    return items, [f"{without} images have no human means."] if without else []


def _find_csv_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.csv")) if path.is_dir() else [path] if path.suffix == ".csv" else []


def _read_columns(file: Path) -> set[str]:
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as text:
        return set(next(csv.reader(text), []))


def _read_rows(file: Path) -> Rows:
    """Yield each row with its place, such as `trials.csv, row 2`. The header is row 1."""
    number = 1
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            rows = csv.reader(text)
            header = next(rows, [])
            content_rows = filter(None, rows)  # Blank lines are no rows.
            for number, cells in enumerate(content_rows, start=2):
                if len(cells) != len(header):
                    raise StudyError([f"{file.name}, row {number}: {len(cells)} cells, but {len(header)} columns"])
                yield f"{file.name}, row {number}", dict(zip(header, cells, strict=True))
    except (csv.Error, UnicodeError) as error:
        raise StudyError([f"{file.name}, after row {number}: {error}"]) from error


def _read_files(files: Iterable[Path]) -> Rows:
    for file in files:
        yield from _read_rows(file)


def _read_items_with_norms(file: Path, problems: list[str]) -> Iterator[StudyItem]:
    """Yield the items of an image set (image_id, human_<dimension>_mean) or of the norms (Theme, <Dimension>_mean)."""
    columns = _read_columns(file)
    key = next((name for name in ("image_id", "Theme") if name in columns), "")
    prefixes = {name: prefix for name in DIMENSIONS if (prefix := _find_norm_prefix(name, columns))}
    if not key or not prefixes:
        return
    for where, row in _read_rows(file):
        norms = [norm for name, prefix in prefixes.items() for norm in _read_norms(where, row, name, prefix, problems)]
        category = row.get("Category", "").strip()
        yield StudyItem(row[key], input=row[key], category=category, norms=tuple(norms))


def _find_norm_prefix(dimension: str, columns: set[str]) -> str:
    prefixes = (f"human_{dimension}", dimension.capitalize())
    return next((prefix for prefix in prefixes if f"{prefix}_mean" in columns), "")


def _read_norms(where: str, row: Row, dimension: str, prefix: str, problems: list[str]) -> Iterator[HumanNorm]:
    """Yield the norm of a row. sd and n are unknown if there is no such column, or nothing in it."""

    def read(column: str, kind: Callable[[str], T]) -> T | None:
        text = row.get(f"{prefix}_{column}", "")
        return _read(kind, text, f"{where}: {prefix}_{column}", problems) if text else None

    mean, sd, n = read("mean", float), read("SD", float), read("N", int)
    if mean is not None:
        yield HumanNorm(dimension, mean, sd, n)


def _check(where: str, row: Row, problems: list[str]) -> None:
    if not row["image_id"] or not row["dimension"]:
        problems.append(f"{where}: image_id and dimension must not be empty")
    if row["status"] not in ("done", "failed", "pending", "running"):
        problems.append(f"{where}: status is {row['status']!r}, not done, failed, pending or running")
    rating = _read(_read_integer, row["rating"], f"{where}: rating", problems) if row["rating"] else None
    if rating is not None and not LOW <= rating <= HIGH:
        problems.append(f"{where}: rating {rating} is not on the scale from {LOW} to {HIGH}")
    for name in ("sample_idx", "attempts", "latency_ms", "input_tokens", "output_tokens"):
        if row.get(name) or name == "sample_idx":
            number = _read(_read_integer, row.get(name, ""), f"{where}: {name}", problems)
            if number is not None and number < 0:
                problems.append(f"{where}: {name} is below zero")
    if row.get("cost_usd"):
        _read(Decimal, row["cost_usd"], f"{where}: cost_usd", problems)
    for name in ("claimed_at", "completed_at"):
        if row.get(name):
            _read(_read_time, row[name], f"{where}: {name}", problems)


def _read(kind: Callable[[str], T], text: str, place: str, problems: list[str]) -> T | None:
    try:
        return kind(text)
    except (ValueError, InvalidOperation):
        problems.append(f"{place} cannot be read: {text!r}")
        return None


def _read_integer(text: str) -> int:
    """Return a whole number. pandas writes 6 as 6.0 in a column with empty cells."""
    return int(text.removesuffix(".0"))


def _read_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_trials(rows: Callable[[], Rows]) -> Iterator[StudyTrial]:
    """Yield the trials that ended. Pending ones were never answered."""
    for where, row in rows():
        if row["status"] in ("done", "failed"):
            yield _build_trial(where, row)


def _build_trial(where: str, row: Row) -> StudyTrial:
    def read_number(name: str) -> int | None:
        return _read_integer(row[name]) if row.get(name) else None

    def read_time(name: str) -> datetime | None:
        return _read_time(row[name]) if row.get(name) else None

    is_done = row["status"] == "done"
    error = row.get("error", "")
    is_refusal = not is_done and any(sign.lower() in error.lower() for sign in REFUSALS)
    text = row.get("raw_response", "")
    return StudyTrial(
        where=where,
        condition=row["run_id"],
        item=row["image_id"],
        dimension=row["dimension"],
        sample_idx=_read_integer(row["sample_idx"]),
        is_done=is_done,
        answer=text,
        raw_response=text if is_done else None,
        reasoning=row.get("reasoning", ""),
        rating=read_number("rating"),
        finish_reason=row.get("finish_reason", ""),
        is_truncated=row.get("finish_reason") == "length",
        is_refused=False,
        attempts=read_number("attempts") or 1,
        input_tokens=read_number("input_tokens"),
        output_tokens=read_number("output_tokens"),
        cost_usd=Decimal(row["cost_usd"]) if row.get("cost_usd") else None,
        latency_ms=read_number("latency_ms"),
        response_id=row.get("response_id", ""),
        error_class="" if is_done else "content_refused" if is_refusal else "unknown",
        error=error,
        claimed_at=read_time("claimed_at"),
        completed_at=read_time("completed_at"),
    )


OASIS_LLM = StudyFormat(
    "oasis-llm",
    "OASIS-LLM",
    is_oasis_llm,
    read_oasis_llm,
    content="a CSV file of trials, or a folder with it, the image set and prompt_template.md",
    suffixes=(".csv",),
)
