"""OASIS-LLM: trials as CSV, with the image set and its human means in another CSV of the same folder.

Files are known by their columns, not by their names. The text of the prompt is in `prompt_template.md` if at all.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import TypeVar

from grading_app.study_import.study import (
    HumanNorm,
    Study,
    StudyCondition,
    StudyDimension,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
)

T = TypeVar("T")
TRIAL_COLUMNS = {"run_id", "image_id", "dimension", "sample_idx", "status", "rating"}
DIMENSIONS = ("valence", "arousal")
LOW, HIGH = 1, 7  # The scale of every study of this tool.
REFUSALS = ("inappropriate content", "DataInspectionFailed", "content_policy", "content policy", "safety")
NO_PROMPT = "The prompt's text is not in the files; conditions hold a placeholder."


def is_oasis_llm(path: Path) -> bool:
    return any(_columns(file) >= TRIAL_COLUMNS for file in _csv_files(path))


def read_oasis_llm(path: Path) -> Study:
    """Return the study of a folder, or of a file of trials with the image set beside it.

    Raise StudyError for rows that cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    trial_files = [file for file in _csv_files(path) if _columns(file) >= TRIAL_COLUMNS]
    if not trial_files:
        raise StudyError([f"{path.name}: no CSV file with the columns {', '.join(sorted(TRIAL_COLUMNS))}"])
    problems: list[str] = []
    norms = {key: item for file in _csv_files(folder) for key, item in _items_with_norms(file, problems)}
    models: dict[str, str] = {}
    images: dict[str, None] = {}
    named: set[str] = set()
    for file in trial_files:
        for where, row in _rows(file):
            models.setdefault(row["run_id"], row.get("model") or row["run_id"].rpartition("__")[2])
            images.setdefault(row["image_id"])
            named.add(row["dimension"])
            _check(where, row, problems)
    if problems:
        raise StudyError(problems)
    template = next(iter(sorted(folder.rglob("prompt_template.md"))), None)
    messages = ({"role": "user", "content": template.read_text(encoding="utf-8")},) if template else ()
    without = [key for key in images if key not in norms]
    notes = ["The images are not in the files: items hold their names."]
    notes += [] if template else [NO_PROMPT]
    notes += [f"{len(without)} images have no human means."] if without else []
    return Study(
        name=path.stem if path.is_file() else path.name,
        tool="oasis-llm",
        items=[norms.get(key) or StudyItem(key, input=key) for key in images],
        conditions=[
            StudyCondition(run, model, model, prompt="oasis-llm-rating", messages=messages)
            for run, model in models.items()
        ],
        trials=partial(_trials, trial_files),
        dimensions=[StudyDimension(name, LOW, HIGH) for name in sorted(named)],
        notes=notes,
    )


def _csv_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.csv")) if path.is_dir() else [path] if path.suffix == ".csv" else []


def _columns(file: Path) -> set[str]:
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as text:
        return set(next(csv.reader(text), []))


def _rows(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row with its place, such as `trials.csv, row 2`. The header is row 1."""
    with file.open(newline="", encoding="utf-8-sig") as text:
        for number, row in enumerate(csv.DictReader(text), start=2):
            yield f"{file.name}, row {number}", {name: value or "" for name, value in row.items() if name}


def _items_with_norms(file: Path, problems: list[str]) -> Iterator[tuple[str, StudyItem]]:
    """Yield the items of an image set: image_id, human_<dimension>_mean, Category."""
    columns = _columns(file)
    measured = [name for name in DIMENSIONS if f"human_{name}_mean" in columns]
    if "image_id" not in columns or not measured:
        return
    for where, row in _rows(file):
        found = []
        for name in measured:
            if row[f"human_{name}_mean"]:
                mean = _read(float, row[f"human_{name}_mean"], f"{where}: human_{name}_mean", problems)
                found += [HumanNorm(name, mean)] if mean is not None else []
        key = row["image_id"]
        yield key, StudyItem(key, input=key, category=row.get("Category", ""), norms=tuple(found))


def _check(where: str, row: dict[str, str], problems: list[str]) -> None:
    if not row["image_id"] or not row["dimension"]:
        problems.append(f"{where}: image_id and dimension must not be empty")
    if row["status"] not in ("done", "failed", "pending", "running"):
        problems.append(f"{where}: status is {row['status']!r}, not done, failed, pending or running")
    rating = _read(int, row["rating"], f"{where}: rating", problems) if row["rating"] else None
    if rating is not None and not LOW <= rating <= HIGH:
        problems.append(f"{where}: rating {rating} is not on the scale from {LOW} to {HIGH}")
    for name in ("sample_idx", "attempts", "latency_ms", "input_tokens", "output_tokens"):
        if row.get(name) or name == "sample_idx":
            number = _read(int, row.get(name, ""), f"{where}: {name}", problems)
            if number is not None and number < 0:
                problems.append(f"{where}: {name} is below zero")
    if row.get("cost_usd"):
        _read(Decimal, row["cost_usd"], f"{where}: cost_usd", problems)
    for name in ("claimed_at", "completed_at"):
        if row.get(name):
            _read(_time, row[name], f"{where}: {name}", problems)


def _read(kind: Callable[[str], T], text: str, what: str, problems: list[str]) -> T | None:
    try:
        return kind(text)
    except (ValueError, InvalidOperation):
        problems.append(f"{what} cannot be read: {text!r}")
        return None


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _trials(files: list[Path]) -> Iterator[StudyTrial]:
    """Yield the trials that ended. Pending ones were never answered."""
    for file in files:
        for where, row in _rows(file):
            if row["status"] in ("done", "failed"):
                yield _trial(where, row)


def _trial(where: str, row: dict[str, str]) -> StudyTrial:
    def number(name: str) -> int | None:
        return int(row[name]) if row.get(name) else None

    def time(name: str) -> datetime | None:
        return _time(row[name]) if row.get(name) else None

    is_done = row["status"] == "done"
    error = row.get("error", "")
    refused = not is_done and any(sign.lower() in error.lower() for sign in REFUSALS)
    text = row.get("raw_response", "")
    return StudyTrial(
        where=where,
        condition=row["run_id"],
        item=row["image_id"],
        dimension=row["dimension"],
        sample_idx=int(row["sample_idx"]),
        is_done=is_done,
        answer=text,
        raw_response=text if is_done else None,
        reasoning=row.get("reasoning", ""),
        rating=number("rating"),
        finish_reason=row.get("finish_reason", ""),
        is_truncated=row.get("finish_reason") == "length",
        is_refused=False,
        attempts=number("attempts") or 1,
        input_tokens=number("input_tokens"),
        output_tokens=number("output_tokens"),
        cost_usd=Decimal(row["cost_usd"]) if row.get("cost_usd") else None,
        latency_ms=number("latency_ms"),
        response_id=row.get("response_id", ""),
        error_class="" if is_done else "content_refused" if refused else "unknown",
        error=error,
        claimed_at=time("claimed_at"),
        completed_at=time("completed_at"),
    )


OASIS_LLM = StudyFormat(
    "oasis-llm",
    "OASIS-LLM",
    is_oasis_llm,
    read_oasis_llm,
    content="a CSV file of trials, or a folder with it, the image set and prompt_template.md",
    suffixes=(".csv",),
)
