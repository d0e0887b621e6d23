"""OASIS-LLM: its database file, with runs, trials and image sets. Human means come from a CSV file beside it.

duckdb reads the file in a process with limits. It is an optional package, because only this format needs it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from datasets_app.importing.table_dump import is_duckdb
from grading_app.study_import.oasis_llm import (
    HIGH,
    LOW,
    NOTES,
    TOOL,
    Rows,
    TrialFacts,
    check_rows,
    find_items,
    read_trials,
)
from grading_app.study_import.stored_tables import StoredTables, TableRow, read_database
from grading_app.study_import.study import (
    Study,
    StudyCondition,
    StudyDimension,
    StudyError,
    StudyFormat,
    StudyItem,
    refuse_unreadable,
    separate_equal,
)

TABLES = (
    "runs", "trials", "datasets", "dataset_images", "experiments", "experiment_configs", "analyses", "analysis_runs",
    "favorites",
)  # fmt: skip
NOT_TAKEN = ("experiments", "analyses", "favorites")
REQUIRED = ("run_id", "image_id", "dimension", "sample_idx", "status", "rating")
SETTINGS = ("temperature", "max_tokens")
STRATEGIES = ("stratified", "uniform", "random", "all")
MISSING = "needs the package duckdb, which is not installed: run `pip install duckdb` for the site, then import again"


@dataclass
class ImageSet:
    """The images of one of the database's datasets. excluded: notes by image."""

    images: dict[str, None] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


def is_oasis_duckdb(path: Path) -> bool:
    return _find_database(path) is not None


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
    facts = check_rows(rows())
    configs = _read_configs(tables)
    sets = _read_image_sets(tables, {str(config.get("image_set") or "") for config in configs.values()})
    conditions, separation_notes = separate_equal(
        [_build_condition(run, facts, configs.get(run, {})) for run in _list_runs(configs, facts)]
    )
    folder = path if path.is_dir() else path.parent
    items, norm_notes = find_items(
        folder, dict.fromkeys([*facts.images, *(key for image_set in sets.values() for key in image_set.images)])
    )
    return Study(
        name=path.stem if path.is_file() else path.name,
        tool=TOOL,
        items=[_mark_excluded(item, facts, sets) for item in items],
        conditions=conditions,
        trials=partial(read_trials, rows),
        dimensions=[StudyDimension(name, LOW, HIGH) for name in sorted(facts.dimensions)],
        notes=[*NOTES, *norm_notes, *facts.notes, *separation_notes, *_list_notes(tables, configs, facts, sets)],
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
        absent = [name for name in REQUIRED if name not in row]
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


def _list_runs(configs: Mapping[str, Any], facts: TrialFacts) -> Iterator[str]:
    """Yield the configured runs that have trials, then the runs without a configuration."""
    yield from (run for run in configs if run in facts.models)
    yield from (run for run in facts.models if run not in configs)


def _build_condition(run: str, facts: TrialFacts, config: Mapping[str, Any]) -> StudyCondition:
    model = str(config.get("model") or facts.models[run]).removeprefix("openrouter/")
    settings = {name: config[name] for name in SETTINGS if config.get(name) is not None}
    system = config.get("system_prompt_override")
    turns = ({"role": "system", "content": str(system)},) if system else ()
    return StudyCondition(
        run,
        model.rpartition("/")[2],
        model,
        provider=str(config.get("provider") or ""),
        prompt="oasis-llm-rating",
        messages=(*turns, {"role": "user", "content": "{{input}}"}),
        sampler="oasis-llm-" + ("-".join(f"{name}-{value}" for name, value in settings.items()) or "default"),
        settings=settings,
    )


# --- image sets -------------------------------------------------------------------------------------------------------


def _read_image_sets(tables: StoredTables, names: set[str]) -> dict[str, ImageSet]:
    """Return the image sets that runs name, as far as the database has them."""
    sets = {}
    for where, row in tables.rows("datasets"):
        with refuse_unreadable(where):
            if row["dataset_id"] in names:
                sets[str(row["dataset_id"])] = ImageSet(recipe=_build_recipe(row))
    for where, row in tables.rows("dataset_images"):
        with refuse_unreadable(where):
            if (image_set := sets.get(str(row["dataset_id"]))) is not None:
                image_set.images[str(row["image_id"])] = None
                if row.get("excluded"):
                    image_set.excluded[str(row["image_id"])] = str(row.get("note") or "")
    return sets


def _build_recipe(row: TableRow) -> dict[str, Any]:
    params = row.get("generation_params")
    params = json.loads(params) if isinstance(params, str) and params else params or {}
    numbers = {name: params[name] for name in ("n", "seed") if type(params.get(name)) is int}
    strategy = {"strategy": params["strategy"]} if params.get("strategy") in STRATEGIES else {}
    return {"image_set": str(row["dataset_id"])} | strategy | numbers


def _mark_excluded(item: StudyItem, facts: TrialFacts, sets: Mapping[str, ImageSet]) -> StudyItem:
    """Return the item with its image sets. It is excluded if it was excluded everywhere, and never asked."""
    within = sorted(name for name, image_set in sets.items() if item.key in image_set.images)
    notes = {name: sets[name].excluded[item.key] for name in within if item.key in sets[name].excluded}
    metadata: dict[str, Any] = {"image_sets": within} if within else {}
    metadata |= {"excluded_from": sorted(notes)} if notes else {}
    is_excluded = bool(notes) and len(notes) == len(within) and item.key not in facts.images
    note = "; ".join(filter(None, notes.values())) or "Excluded in the source" if is_excluded else ""
    return replace(item, metadata=metadata, excluded=is_excluded, note=note)


def _list_notes(
    tables: StoredTables, configs: Mapping[str, Any], facts: TrialFacts, sets: Mapping[str, ImageSet]
) -> list[str]:
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
    return notes


OASIS_DUCKDB = StudyFormat(
    "oasis-llm-duckdb",
    "OASIS-LLM (DuckDB)",
    is_oasis_duckdb,
    read_oasis_duckdb,
    content="the database file, or a folder with it and a CSV file of human means",
    suffixes=(".duckdb",),
)
