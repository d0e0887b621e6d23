"""OASIS-LLM: trials as CSV or in its database (DuckDB), with the human means of the images in a CSV file beside them.

CSV files are known by their columns, not by their names. The text of the prompt is in `prompt_template.md` if at all.
duckdb reads the database in a process with limits. It is an optional package, because only this format needs it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from datasets_app.importing.table_dump import is_duckdb
from grading_app.study_import.formats.oasis_design import find_design
from grading_app.study_import.stored_tables import StoredTables, read_database
from grading_app.study_import.study import (
    INPUT_TURN,
    MAX_PROBLEMS,
    HumanNorm,
    Study,
    StudyCondition,
    StudyDimension,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
    name_sampler,
    read_finish,
    read_time,
    refuse_unreadable,
    separate_equal,
)
from grading_app.study_import.text_files import find_files

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
TABLES = (
    "runs", "trials", "datasets", "dataset_images", "experiments", "experiment_configs", "analyses", "analysis_runs",
    "favorites",
)  # fmt: skip
NOT_TAKEN = ("experiments", "analyses", "favorites")
STRATEGIES = ("stratified", "uniform", "random", "all")
MISSING = "needs the package duckdb, which is not installed: run `pip install duckdb` for the site, then import again"


def read_oasis_llm(path: Path) -> Study:
    """Return the study of a folder, or of a file of trials with the image set beside it.

    Raise StudyError for rows that cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    columns = {file: _read_columns(file) for file in find_files(path, ".csv")}
    trial_files = [file for file, names in columns.items() if names >= RECOGNISED_BY]
    if not trial_files:
        raise StudyError([f"{path.name}: no CSV file with the columns {', '.join(sorted(TRIAL_COLUMNS))}"])
    absent = {file.name: ", ".join(sorted(TRIAL_COLUMNS - columns[file])) for file in trial_files}
    if problems := [f"{name}: the header has no column {names}" for name, names in absent.items() if names]:
        raise StudyError(problems)

    def rows() -> Rows:
        for file in trial_files:
            yield from _read_rows(file)

    facts = _check_rows(rows())
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
    items, norm_notes = _find_items(folder, facts.images)
    return Study(
        name=path.stem if path.is_file() else path.name,
        tool=TOOL,
        items=items,
        conditions=conditions,
        trials=partial(_read_trials, rows),
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


def _check_rows(rows: Rows) -> TrialFacts:
    """Return the facts that the rows name. Raise StudyError with the problems of all rows."""
    facts = TrialFacts()
    problems: list[str] = []
    for where, row in rows:
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
                _read(read_time, row[name], f"{where}: {name}", problems)
        if len(problems) > 10 * MAX_PROBLEMS:
            break
        facts.models.setdefault(row["run_id"], row.get("model") or row["run_id"].rpartition("__")[2])
        facts.images.setdefault(row["image_id"])
        facts.dimensions.add(row["dimension"])
        facts.unanswered += row["status"] in ("pending", "running")
    if problems:
        raise StudyError(problems)
    return facts


def _find_items(folder: Path, images: Iterable[str]) -> tuple[list[StudyItem], list[str]]:
    """Return the items of the images, with norms and categories from CSV files of the folder, and notes."""
    problems: list[str] = []
    norms: dict[str, StudyItem] = {}
    for file in find_files(folder, ".csv"):
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


def _read_items_with_norms(file: Path, problems: list[str]) -> Iterator[StudyItem]:
    """Yield the items of an image set (image_id, human_<dimension>_mean) or of the norms (Theme, <Dimension>_mean)."""
    columns = _read_columns(file)
    key = next((name for name in ("image_id", "Theme") if name in columns), "")
    prefixes = {
        name: prefix
        for name in DIMENSIONS
        for prefix in (name.capitalize(), f"human_{name}")
        if f"{prefix}_mean" in columns
    }
    if not key or not prefixes:
        return
    for where, row in _read_rows(file):
        norms = [norm for name, prefix in prefixes.items() for norm in _read_norms(where, row, name, prefix, problems)]
        category = row.get("Category", "").strip()
        yield StudyItem(row[key], input=row[key], category=category, norms=tuple(norms))


def _read_norms(where: str, row: Row, dimension: str, prefix: str, problems: list[str]) -> Iterator[HumanNorm]:
    """Yield the norm of a row. sd and n are unknown if there is no such column, or nothing in it."""

    def read(column: str, kind: Callable[[str], T]) -> T | None:
        text = row.get(f"{prefix}_{column}", "")
        return _read(kind, text, f"{where}: {prefix}_{column}", problems) if text else None

    mean, sd, n = read("mean", float), read("SD", float), read("N", int)
    if mean is not None:
        yield HumanNorm(dimension, mean, sd, n)


def _read(kind: Callable[[str], T], text: str, place: str, problems: list[str]) -> T | None:
    try:
        return kind(text)
    except (ValueError, InvalidOperation):
        problems.append(f"{place} cannot be read: {text!r}")
        return None


def _read_integer(text: str) -> int:
    """Return a whole number. pandas writes 6 as 6.0 in a column with empty cells."""
    return int(text.removesuffix(".0"))


def _read_trials(rows: Callable[[], Rows]) -> Iterator[StudyTrial]:
    """Yield the trials that ended. Pending ones were never answered."""
    for where, row in rows():
        if row["status"] not in ("done", "failed"):
            continue
        is_done, error, text = row["status"] == "done", row.get("error", ""), row.get("raw_response", "")
        is_refusal = not is_done and any(sign.lower() in error.lower() for sign in REFUSALS)
        rating, attempts, input_tokens, output_tokens, latency_ms = (
            _read_integer(row[name]) if row.get(name) else None
            for name in ("rating", "attempts", "input_tokens", "output_tokens", "latency_ms")
        )
        yield StudyTrial(
            where=where,
            condition=row["run_id"],
            item=row["image_id"],
            dimension=row["dimension"],
            sample_idx=_read_integer(row["sample_idx"]),
            is_done=is_done,
            answer=text,
            reasoning=row.get("reasoning", ""),
            rating=rating,
            **read_finish(row.get("finish_reason")),
            attempts=attempts or 1,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost_usd=Decimal(row["cost_usd"]) if row.get("cost_usd") else None,
            latency_ms=latency_ms,
            response_id=row.get("response_id", ""),
            error_class="content_refused" if is_refusal else "",
            error=error,
            claimed_at=read_time(row.get("claimed_at")),
            completed_at=read_time(row.get("completed_at")),
        )


# --- the database -----------------------------------------------------------------------------------------------------


@dataclass
class ImageSet:
    """The images of one of the database's datasets. excluded: notes by image."""

    images: dict[str, None] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


def read_oasis_duckdb(path: Path) -> Study:
    """Return the study of all runs in a database. Raise StudyError if duckdb is missing or a row cannot be read."""
    file = _find_database(path)
    if file is None:
        raise StudyError([f"{path.name}: no DuckDB file"])
    if find_spec("duckdb") is None:
        raise StudyError([f"{file.name} {MISSING}"])
    tables = read_database(file, TABLES)
    if not tables.has("trials"):
        raise StudyError([f"{file.name}: no table trials, as OASIS-LLM has it"])
    rows = partial(_read_trial_rows, tables)
    facts = _check_rows(rows())
    configs = _read_configs(tables)
    sets = _read_image_sets(tables, {str(config.get("image_set") or "") for config in configs.values()})
    runs = [run for run in configs if run in facts.models] + [run for run in facts.models if run not in configs]
    conditions, separation_notes = separate_equal([_build_condition(run, facts, configs.get(run, {})) for run in runs])
    folder = path if path.is_dir() else path.parent
    items, norm_notes = _find_items(
        folder, dict.fromkeys([*facts.images, *(key for image_set in sets.values() for key in image_set.images)])
    )
    notes = ["Of the prompts the database has only an override of the system turn: conditions hold a placeholder."]
    empty_runs = [run for run in configs if run not in facts.models]
    notes += [f"{len(empty_runs)} runs without trials are left out."] if empty_runs else []
    states = Counter(str(config["run_status"]) for run, config in configs.items() if config["run_status"] != "done")
    notes += [f"{n} runs were {status}: their finished trials are taken." for status, n in sorted(states.items())]
    late_exclusions = sum(1 for image_set in sets.values() for key in image_set.excluded if key in facts.images)
    notes += (
        [f"{late_exclusions} images were excluded after they were asked: their answers are taken."]
        if late_exclusions
        else []
    )
    counts = {table: tables.count(table) for table in NOT_TAKEN}
    notes += [f"{n} {table} are not taken: they hold no answers." for table, n in counts.items() if n]
    return Study(
        name=path.stem if path.is_file() else path.name,
        tool=TOOL,
        items=[_mark_excluded(item, facts, sets) for item in items],
        conditions=conditions,
        trials=partial(_read_trials, rows),
        dimensions=[StudyDimension(name, LOW, HIGH) for name in sorted(facts.dimensions)],
        notes=[*NOTES, *norm_notes, *facts.notes, *separation_notes, *notes],
        recipe=next(iter(sets.values())).recipe if len(sets) == 1 else {"image_sets": ", ".join(sorted(sets))},
        scratch=(tables.scratch,),
    )


def _find_database(path: Path) -> Path | None:
    """Return the database at the path, or the only one in the folder."""
    files = sorted(path.rglob("*.duckdb")) if path.is_dir() else [path]
    databases = [file for file in files if file.is_file() and is_duckdb(file)]
    return databases[0] if len(databases) == 1 else None


# --- rows -------------------------------------------------------------------------------------------------------------


def _read_trial_rows(tables: StoredTables) -> Rows:
    """Yield the trials as texts, as the CSV files have them. An empty text is NULL."""
    for where, row in tables.rows("trials"):
        absent = [name for name in sorted(TRIAL_COLUMNS) if name not in row]
        if absent:
            raise StudyError([f"{where}: {', '.join(absent)} missing"])
        yield where, {name: "" if value is None else str(value) for name, value in row.items()}


def _read_configs(tables: StoredTables) -> dict[str, dict[str, Any]]:
    """Return the configuration of each run, in the order of their creation, with the run's status as `run_status`."""
    runs: list[tuple[str, str, dict[str, Any]]] = []
    for where, row in tables.rows("runs"):
        with refuse_unreadable(where):
            content = row.get("config_json")
            config = json.loads(content) if isinstance(content, str) and content else content or {}
            if not isinstance(config, dict):
                raise StudyError([f"{where}: config_json is no object"])
            runs.append(
                (str(row.get("created_at") or ""), str(row["run_id"]), config | {"run_status": row.get("status")})
            )
    return {run: config for _, run, config in sorted(runs, key=lambda run: run[:2])}


def _build_condition(run: str, facts: TrialFacts, config: Mapping[str, Any]) -> StudyCondition:
    model = str(config.get("model") or facts.models[run]).removeprefix("openrouter/")
    settings = {name: config[name] for name in ("temperature", "max_tokens") if config.get(name) is not None}
    system = config.get("system_prompt_override")
    turns = ({"role": "system", "content": str(system)},) if system else ()
    return StudyCondition(
        run,
        model.rpartition("/")[2],
        model,
        provider=str(config.get("provider") or ""),
        prompt="oasis-llm-rating",
        messages=(*turns, *INPUT_TURN),
        sampler=name_sampler("oasis-llm", settings),
        settings=settings,
    )


# --- image sets -------------------------------------------------------------------------------------------------------


def _read_image_sets(tables: StoredTables, names: set[str]) -> dict[str, ImageSet]:
    """Return the image sets that runs name, as far as the database has them."""
    sets = {}
    for where, row in tables.rows("datasets"):
        with refuse_unreadable(where):
            if row["dataset_id"] in names:
                params = row.get("generation_params")
                params = json.loads(params) if isinstance(params, str) and params else params or {}
                numbers = {name: params[name] for name in ("n", "seed") if type(params.get(name)) is int}
                strategy = {"strategy": params["strategy"]} if params.get("strategy") in STRATEGIES else {}
                sets[str(row["dataset_id"])] = ImageSet(
                    recipe={"image_set": str(row["dataset_id"])} | strategy | numbers
                )
    for where, row in tables.rows("dataset_images"):
        with refuse_unreadable(where):
            if (image_set := sets.get(str(row["dataset_id"]))) is not None:
                image_set.images[str(row["image_id"])] = None
                if row.get("excluded"):
                    image_set.excluded[str(row["image_id"])] = str(row.get("note") or "")
    return sets


def _mark_excluded(item: StudyItem, facts: TrialFacts, sets: Mapping[str, ImageSet]) -> StudyItem:
    """Return the item with its image sets. It is excluded if it was excluded everywhere, and never asked."""
    within = sorted(name for name, image_set in sets.items() if item.key in image_set.images)
    notes = {name: sets[name].excluded[item.key] for name in within if item.key in sets[name].excluded}
    metadata: dict[str, Any] = {"image_sets": within} if within else {}
    metadata |= {"excluded_from": sorted(notes)} if notes else {}
    is_excluded = bool(notes) and len(notes) == len(within) and item.key not in facts.images
    note = "; ".join(filter(None, notes.values())) or "Excluded in the source" if is_excluded else ""
    return replace(item, metadata=metadata, excluded=is_excluded, note=note)


OASIS_LLM = StudyFormat(
    name=TOOL,
    label="OASIS-LLM",
    recognises=lambda path: any(_read_columns(file) >= RECOGNISED_BY for file in find_files(path, ".csv")),
    read=read_oasis_llm,
    content="a CSV file of trials, or a folder with it, the image set and prompt_template.md",
    suffixes=(".csv",),
    find_design=find_design,
)
OASIS_DUCKDB = StudyFormat(
    name="oasis-llm-duckdb",
    label="OASIS-LLM (DuckDB)",
    recognises=lambda path: _find_database(path) is not None,
    read=read_oasis_duckdb,
    content="the database file, or a folder with it and a CSV file of human means",
    suffixes=(".duckdb",),
)
