"""OASIS-LLM: trials as CSV or in its database (DuckDB), with the human means of the images in a CSV file beside them.

CSV files are known by their columns, not by their names. The text of the prompt is in `prompt_template.md` if at all.
duckdb reads the database in a process with limits. It is an optional package, because only this format needs it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from datasets_app.importing.table_dump import is_duckdb
from grading_app.study_import.formats.oasis_design import is_config, read_config
from grading_app.study_import.stored_tables import StoredTables, read_database
from grading_app.study_import.study import (
    HumanNorm,
    StudyCondition,
    StudyDimension,
    StudyError,
    StudyItem,
    build_condition,
    read_finish,
    read_time,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files

T = TypeVar("T")
Row = dict[str, str]
Rows = Iterator[tuple[str, Row]]
TOOL = "oasis-llm"
TRIAL_COLUMNS = {"run_id", "image_id", "dimension", "sample_idx", "status", "rating"}
RECOGNISED_BY = {"run_id", "image_id"}  # Both columns are in trials alone; a missing column is then an error.
MODEL_COLUMNS = {"run_id", "provider", "model_id"}  # Of `models.csv`.
NUMBERS = ("sample_idx", "attempts", "latency_ms", "input_tokens", "output_tokens")
DIMENSIONS = ("valence", "arousal")
LOW, HIGH = 1, 7  # The scale of every study of this tool.
REFUSALS = ("inappropriate content", "DataInspectionFailed", "content_policy", "content policy", "safety")
NOTES = (
    "The images are not in the files: items hold their names.",
    "Times have no zone in the files: they are taken as UTC.",
)
NO_PROMPT = "The prompt's text is not in the files; conditions hold a placeholder."
TABLES = (
    "runs", "trials", "datasets", "dataset_images", "experiments", "experiment_configs", "analyses", "analysis_runs",
    "favorites",
)  # fmt: skip
NOT_TAKEN = ("experiments", "analyses", "favorites")
STRATEGIES = ("stratified", "uniform", "random", "all")
MISSING = "needs the package duckdb, which is not installed: run `pip install duckdb` for the site, then import again"


def read_oasis_llm(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the trials of CSV files, with the image set beside them."""
    absent = {file.name: ", ".join(sorted(TRIAL_COLUMNS - _read_columns(file))) for file in files}
    if problems := [f"{name}: the header has no column {names}" for name, names in absent.items() if names]:
        raise StudyError(problems)
    facts = _add_trials((row for file in files for row in _read_rows(file)), draft)
    folder = draft.path if draft.path.is_dir() else draft.path.parent
    template = next(iter(sorted(folder.rglob("prompt_template.md"))), None)
    messages = ({"role": "user", "content": template.read_text(encoding="utf-8")},) if template else ()
    draft.notes += [*NOTES, *([] if template else [NO_PROMPT])]
    sources = {
        row["run_id"]: row
        for file in find_files(draft.path, ".csv")
        if _read_columns(file) >= MODEL_COLUMNS
        for _, row in _read_rows(file)
    }
    for run, model in facts.models.items():
        source = sources.get(run, {})
        draft.add_condition(
            StudyCondition(
                run,
                model,
                source.get("model_id") or model,
                source.get("provider", ""),
                prompt="oasis-llm-rating",
                messages=messages,
            )
        )
    _add_items(folder, facts.images, draft)


@dataclass
class TrialFacts:
    """The models by run, and the images, that the rows of trials name."""

    models: dict[str, str] = field(default_factory=dict)
    images: dict[str, None] = field(default_factory=dict)


def _add_trials(rows: Rows, draft: StudyDraft) -> TrialFacts:
    """Add the trials that ended, and the dimensions. Pending ones were never answered."""
    facts = TrialFacts()
    dimensions: set[str] = set()
    for row in draft.follow(rows):
        status, error = row["status"], row.get("error", "")
        if not row["image_id"] or not row["dimension"]:
            draft.refuse("image_id and dimension must not be empty")
        if status not in ("done", "failed", "pending", "running"):
            draft.refuse(f"status is {status!r}, not done, failed, pending or running")
        rating = _read(_read_integer, row, "rating", draft)
        if rating is not None and not LOW <= rating <= HIGH:
            draft.refuse(f"rating {rating} is not on the scale from {LOW} to {HIGH}")
        if not row["sample_idx"]:
            draft.refuse("sample_idx cannot be read: ''")
        numbers = {name: _read(_read_integer, row, name, draft) for name in NUMBERS}
        for name, number in numbers.items():
            if number is not None and number < 0:
                draft.refuse(f"{name} is below zero")
        cost_usd = _read(Decimal, row, "cost_usd", draft)
        times: dict[str, Any] = {name: _read(read_time, row, name, draft) for name in ("claimed_at", "completed_at")}
        facts.models.setdefault(row["run_id"], row.get("model") or row["run_id"].rpartition("__")[2])
        facts.images.setdefault(row["image_id"])
        dimensions.add(row["dimension"])
        draft.count("unanswered", status in ("pending", "running"))
        if status not in ("done", "failed") or draft.has_problems:
            continue
        is_refusal = status == "failed" and any(sign.lower() in error.lower() for sign in REFUSALS)
        draft.add_trial(
            row["run_id"],
            row["image_id"],
            dimension=row["dimension"],
            is_done=status == "done",
            answer=row.get("raw_response", ""),
            reasoning=row.get("reasoning", ""),
            rating=rating,
            **read_finish(row.get("finish_reason")),
            **{**numbers, "attempts": numbers["attempts"] or 1},
            cost_usd=cost_usd,
            response_id=row.get("response_id", ""),
            error_class="content_refused" if is_refusal else "",
            error=error,
            **times,
        )
    draft.dimensions = [StudyDimension(name, LOW, HIGH) for name in sorted(dimensions)]
    return facts


def _add_items(folder: Path, images: Iterable[str], draft: StudyDraft) -> None:
    """Add the images as items, with norms and categories from CSV files of the folder."""
    norms: dict[str, StudyItem] = {}
    for file in find_files(folder, ".csv"):
        for item in _read_items_with_norms(file, draft):
            if len(item.norms) >= len(norms.get(item.key, item).norms):
                norms[item.key] = item
    items_by_stripped_key = {key.strip(): item for key, item in norms.items()}  # Two published names end in a blank.
    for key in images:
        known = norms.get(key) or items_by_stripped_key.get(key.strip())
        draft.count("without norms", known is None)
        draft.add_item(replace(known or StudyItem(key), key=key, input=key))


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


def _read_items_with_norms(file: Path, draft: StudyDraft) -> Iterator[StudyItem]:
    """Yield the items of an image set (image_id, human_<dimension>_mean) or of the norms (Theme, <Dimension>_mean)."""
    columns = _read_columns(file)
    key = next((name for name in ("image_id", "Theme") if name in columns), "")
    prefixes = {
        name: prefix
        for name in DIMENSIONS
        for prefix in (name.capitalize(), f"human_{name}")
        if f"{prefix}_mean" in columns
    }
    for row in draft.follow(_read_rows(file)) if key and prefixes else ():
        norms = []
        for name, prefix in prefixes.items():
            mean, sd = (_read(float, row, f"{prefix}_{column}", draft) for column in ("mean", "SD"))
            n = _read(int, row, f"{prefix}_N", draft)
            norms += [] if mean is None else [HumanNorm(name, mean, sd, n)]
        yield StudyItem(row[key], input=row[key], category=row.get("Category", "").strip(), norms=tuple(norms))


def _read(kind: Callable[[str], T], row: Row, column: str, draft: StudyDraft) -> T | None:
    """Return the value of a column. None: there is no such column, nothing in it, or no such value."""
    try:
        return kind(row[column]) if row.get(column) else None
    except (ValueError, InvalidOperation):
        draft.refuse(f"{column} cannot be read: {row[column]!r}")
        return None


def _read_integer(text: str) -> int:
    """Return a whole number. pandas writes 6 as 6.0 in a column with empty cells."""
    return int(text.removesuffix(".0"))


# --- the database -----------------------------------------------------------------------------------------------------


@dataclass
class ImageSet:
    """The images of one of the database's datasets. excluded: notes by image."""

    images: dict[str, None] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


def read_oasis_duckdb(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the trials of all runs in a database, with its image sets. Raise StudyError if duckdb is missing."""
    if find_spec("duckdb") is None:
        raise StudyError([f"{files[0].name} {MISSING}"])
    tables = read_database(files[0], TABLES)
    if not tables.has("trials"):
        raise StudyError([f"{files[0].name}: no table trials, as OASIS-LLM has it"])
    facts = _add_trials(_read_trial_rows(tables), draft)
    runs: list[tuple[str, str, dict[str, Any]]] = []
    for row in draft.follow(tables.rows("runs")):
        _require_columns(draft.where, row, "run_id")
        config = _read_object(draft.where, row, "config_json") | {"run_status": row.get("status")}
        runs.append((str(row.get("created_at") or ""), str(row["run_id"]), config))
    configs = {run: config for _, run, config in sorted(runs, key=lambda run: run[:2])}
    sets = _read_image_sets(tables, {str(config.get("image_set") or "") for config in configs.values()}, draft)
    # The runs in the order of their creation, with those that have no configuration at the end.
    for run in dict.fromkeys([*(run for run in configs if run in facts.models), *facts.models]):
        config = configs.get(run, {})
        model = str(config.get("model") or facts.models[run]).removeprefix("openrouter/")
        settings = {name: config[name] for name in ("temperature", "max_tokens") if config.get(name) is not None}
        system = [str(config["system_prompt_override"])] if config.get("system_prompt_override") else []
        provider = str(config.get("provider") or "")
        draft.add_condition(build_condition(TOOL, run, model, "oasis-llm-rating", settings, system, provider=provider))
    folder = draft.path if draft.path.is_dir() else draft.path.parent
    _add_items(folder, dict.fromkeys([*facts.images, *(key for one in sets.values() for key in one.images)]), draft)
    for key, item in draft.items.items():
        within = sorted(name for name, image_set in sets.items() if key in image_set.images)
        notes = {name: sets[name].excluded[key] for name in within if key in sets[name].excluded}
        metadata: dict[str, Any] = {"image_sets": within} if within else {}
        metadata |= {"excluded_from": sorted(notes)} if notes else {}
        # An item is excluded if it was excluded everywhere, and never asked.
        is_excluded = bool(notes) and len(notes) == len(within) and key not in facts.images
        note = "; ".join(filter(None, notes.values())) or "Excluded in the source" if is_excluded else ""
        draft.items[key] = replace(item, metadata=metadata, excluded=is_excluded, note=note)
    draft.recipe = next(iter(sets.values())).recipe if len(sets) == 1 else {"image_sets": ", ".join(sorted(sets))}
    draft.notes += NOTES
    draft.count("empty runs", len(configs.keys() - facts.models.keys()))
    draft.count("late", sum(key in facts.images for image_set in sets.values() for key in image_set.excluded))
    states = Counter(str(config["run_status"]) for config in configs.values() if config["run_status"] != "done")
    draft.notes += [f"{n} runs were {status}: their finished trials are taken." for status, n in sorted(states.items())]
    counts = {table: tables.count(table) for table in NOT_TAKEN}
    draft.notes += [f"{n} {table} are not taken: they hold no answers." for table, n in counts.items() if n]


def _find_databases(path: Path) -> list[Path]:
    """Return the database at the path, or the only one in the folder."""
    files = sorted(path.rglob("*.duckdb")) if path.is_dir() else [path]
    databases = [file for file in files if file.is_file() and is_duckdb(file)]
    return databases if len(databases) == 1 else []


# --- rows -------------------------------------------------------------------------------------------------------------


def _read_trial_rows(tables: StoredTables) -> Rows:
    """Yield the trials as texts, as the CSV files have them. An empty text is NULL."""
    for where, row in tables.rows("trials"):
        _require_columns(where, row, *sorted(TRIAL_COLUMNS))
        yield where, {name: "" if value is None else str(value) for name, value in row.items()}


def _require_columns(where: str, row: Mapping[str, Any], *names: str) -> None:
    if absent := [name for name in names if name not in row]:
        raise StudyError([f"{where}: {', '.join(absent)} missing"])


def _read_object(where: str, row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a column that holds an object, or its JSON; an empty one if there is none."""
    value = row.get(name)
    try:
        content = json.loads(value) if isinstance(value, str) and value else value or {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise StudyError([f"{where}: {name} is no JSON: {error}"]) from None
    if not isinstance(content, dict):
        raise StudyError([f"{where}: {name} is no object"])
    return content


# --- image sets -------------------------------------------------------------------------------------------------------


def _read_image_sets(tables: StoredTables, names: set[str], draft: StudyDraft) -> dict[str, ImageSet]:
    """Return the image sets that runs name, as far as the database has them."""
    sets = {}
    for row in draft.follow(tables.rows("datasets")):
        _require_columns(draft.where, row, "dataset_id")
        if str(row["dataset_id"]) in names:
            params = _read_object(draft.where, row, "generation_params")
            numbers = {name: params[name] for name in ("n", "seed") if type(params.get(name)) is int}
            strategy = {"strategy": params["strategy"]} if params.get("strategy") in STRATEGIES else {}
            sets[str(row["dataset_id"])] = ImageSet(recipe={"image_set": str(row["dataset_id"])} | strategy | numbers)
    for row in draft.follow(tables.rows("dataset_images")):
        _require_columns(draft.where, row, "dataset_id", "image_id")
        if (image_set := sets.get(str(row["dataset_id"]))) is not None:
            image_set.images[str(row["image_id"])] = None
            if row.get("excluded"):
                image_set.excluded[str(row["image_id"])] = str(row.get("note") or "")
    return sets


COUNT_NOTES = {
    "without norms": "{} images have no human means.",
    "unanswered": "{} trials without an outcome (pending or running) are left out.",
    "empty runs": "{} runs without trials are left out.",
    "late": "{} images were excluded after they were asked: their answers are taken.",
}
OASIS_LLM = StudyFormat(
    name=TOOL,
    label="OASIS-LLM",
    content="a CSV file of trials, or a folder with it, the image set and prompt_template.md",
    suffixes=(".csv",),
    find=lambda path: [file for file in find_files(path, ".csv") if _read_columns(file) >= RECOGNISED_BY],
    missing=f"no CSV file with the columns {', '.join(sorted(TRIAL_COLUMNS))}",
    read=read_oasis_llm,
    is_design=is_config,
    read_design=read_config,
    count_notes=COUNT_NOTES,
)
OASIS_DUCKDB = StudyFormat(
    name="oasis-llm-duckdb",
    tool=TOOL,
    label="OASIS-LLM (DuckDB)",
    content="the database file, or a folder with it and a CSV file of human means",
    suffixes=(".duckdb",),
    find=_find_databases,
    missing="no DuckDB file",
    read=read_oasis_duckdb,
    notes=("Of the prompts the database has only an override of the system turn: conditions hold a placeholder.",),
    count_notes=COUNT_NOTES,
)
