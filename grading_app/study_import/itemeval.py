"""itemeval: a study folder with the stores of items, solutions and gradings (Parquet), manifests and the study's YAML.

A solution is a trial with one attempt, a grading is a score. The text of a prompt is taken from a template file of the
folder only if its hash is the one in the store.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from grading_app.study_import.itemeval_config import (
    BUILTIN_TEMPLATES,
    StudyConfig,
    Template,
    find_config_file,
    read_config,
    read_text,
)
from grading_app.study_import.itemeval_design import (
    build_settings,
    build_turns,
    list_conditions,
    list_results_notes,
    name_prompt,
    name_sampler,
)
from grading_app.study_import.itemeval_scores import USAGE_COLUMNS, ScoreStore, read_scores, read_time, read_usage
from grading_app.study_import.key_index import KeyIndex
from grading_app.study_import.stored_tables import StoredTables, TableRow, read_parquet_files, require_columns
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    Study,
    StudyCondition,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyTrial,
    StudyWave,
    refuse_unreadable,
    separate_equal,
    split_model,
)

TOOL = "itemeval"
STORES = SOLUTIONS, ITEMS, GRADINGS, LEDGER = "solutions", "items", "gradings", "ledger"
COPIES = {"export", "snapshots"}  # Folders with copies of the stores.
ITEM_COLUMNS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("item_id", "dataset_id", "dataset_revision", "input", "target", "metadata_json"), (str,)),
    "grading_scheme": (str,),
}
SOLUTION_COLUMNS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "condition_id", "item_id", "model", "prompt_name", "prompt_hash"), (str,)),
    **dict.fromkeys(("solution", "stop_reason", "error", "model_config_name", "created_at"), (str,)),
    **USAGE_COLUMNS,
    "epoch": (int,),
}
NEVER_NULL = ("condition_id", "item_id", "epoch", "model", "created_at")
SETTINGS = ("temperature", "top_p", "max_tokens", "seed")
STOPS = {"max_tokens": "length", "model_length": "length"}


@dataclass
class Manifests:
    """Facts of the manifests: waves by number, the served model by run and condition, the newest configuration."""

    waves: dict[int, StudyWave] = field(default_factory=dict)
    served: dict[tuple[str, str], str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def is_itemeval(path: Path) -> bool:
    return path.is_dir() and bool(_find_stores(path))


def read_itemeval(path: Path) -> Study:
    """Return the study of a folder, or of the only study below it. Raise StudyError, which names file and row."""
    stores = _find_stores(path) if path.is_dir() else []
    if len(stores) != 1:
        names = ", ".join(store.name for store in stores) or "none"
        raise StudyError([f"{path.name}: one folder must have items.parquet and solutions.parquet; found: {names}"])
    store = stores[0]
    files = {table: store / f"{table}.parquet" for table in STORES}
    tables = read_parquet_files({table: file for table, file in files.items() if file.is_file()})
    manifests = _read_manifests(store)
    items = _read_items(tables)
    answers = KeyIndex()
    templates = _read_templates(path)
    by_key, waves = _read_conditions(tables, {item.key for item in items}, answers, manifests, templates)
    conditions, notes = separate_equal(list(by_key.values()))
    offsets = {wave.number: wave.epoch_offset for wave in waves}
    scores = read_scores(tables, answers, templates)
    config, planned_conditions, design_notes = _read_study_design(path, manifests, by_key)
    return Study(
        name=str(manifests.config.get("study") or store.name) if config is None else config.content.study,
        tool=TOOL,
        items=items,
        conditions=conditions,
        trials=partial(_read_trials, tables, offsets, scores, manifests),
        waves=waves,
        planned=planned_conditions,
        settings={} if config is None else build_settings(config.content),
        notes=[*_list_notes(tables, by_key), *design_notes, *notes, *scores.notes, *_list_ledger_notes(tables)],
        source=_describe_source(tables),
        judges=scores.judges,
        scratch=(tables.scratch,),
    )


# --- files ------------------------------------------------------------------------------------------------------------


def _find_stores(path: Path) -> list[Path]:
    """Return the folders with the stores of a study, without the copies in its exports."""
    folders = [file.parent for file in sorted(path.rglob("solutions.parquet"))]
    return [
        folder
        for folder in folders
        if not COPIES & set(folder.relative_to(path).parts) and (folder / "items.parquet").is_file()
    ]


def _read_manifests(store: Path) -> Manifests:
    facts = Manifests()
    for file in sorted((store / "manifests").glob("*.json")):
        with refuse_unreadable(file.name):
            content = json.loads(read_text(file))
            for condition, endpoint in (content.get("endpoints_effective") or {}).items():
                facts.served[content["run_id"], condition] = str(endpoint.get("served_model") or "")
            if content.get("stage") == "generate":
                number = int(content.get("wave") or 0)
                label = str(content.get("wave_label") or "")
                facts.waves[number] = StudyWave(number, label, int(content.get("epoch_offset") or 0))
                facts.config = dict(content.get("config") or {})
    return facts


def _read_study_design(
    path: Path, manifests: Manifests, conditions: Mapping[str, StudyCondition]
) -> tuple[StudyConfig | None, list[StudyCondition], list[str]]:
    """Return the configuration, its conditions without solutions, and notes.

    It is the YAML in the folder, or else the newest manifest's copy. A copy of another version of the tool may be
    invalid: then the study is imported without its design.
    """
    file, content = find_config_file(path) or (path / "manifests", manifests.config)
    if not content:
        return None, [], ["The folder has no configuration: the design is that of the solutions."]
    try:
        config = read_config(file, content, path)
    except StudyError as error:
        return None, [], [f"The design is not taken. {problem}." for problem in error.problems[:MAX_PROBLEMS]]
    run_cells = [(condition.model_id, condition.prompt, condition.sampler) for condition in conditions.values()]
    planned_conditions = [
        condition
        for condition in list_conditions(config)
        if not any(
            (condition.model_id, condition.sampler) == (model, sampler)
            and (condition.prompt == prompt or (not condition.messages and prompt.startswith(condition.prompt)))
            for model, prompt, sampler in run_cells
        )
    ]
    return config, planned_conditions, list(list_results_notes(config, planned_conditions))


def _read_templates(path: Path) -> dict[str, str]:
    """Return the texts of the template files and of the packaged ones, by the start of their hash."""
    texts = [read_text(file).replace("\r\n", "\n") for file in sorted(path.rglob("*.md"))]
    templates = [Template("", text) for text in (*BUILTIN_TEMPLATES.values(), *texts)]
    return {template.digest: template.text or "" for template in templates}


def _describe_source(tables: StoredTables) -> str:
    """Return the datasets with their revisions."""
    sources = {f"{row['dataset_id']}@{row['dataset_revision']}": None for _, row in tables.rows(ITEMS)}
    return f"Imported from {TOOL}: " + ", ".join(sources)[:1000]


# --- items and conditions ---------------------------------------------------------------------------------------------


def _read_items(tables: StoredTables) -> list[StudyItem]:
    problems: list[str] = []
    items: dict[str, StudyItem] = {}
    for where, row in tables.rows(ITEMS):
        row_problems = require_columns(where, row, ITEM_COLUMNS)
        problems += row_problems
        if row_problems:
            continue
        key = str(row["item_id"] or "")
        if key in items:
            problems.append(f"{where}: the item {key!r} is there twice")
        try:
            metadata = json.loads(row["metadata_json"] or "{}")
        except (ValueError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict):
            problems.append(f"{where}: metadata_json is no JSON object")
            continue
        category = metadata.get("category")
        items[key] = StudyItem(
            key,
            input=row["input"] or "",
            target=row["target"] or "",
            category=category if isinstance(category, str) else "",
            metadata=metadata,
            grading_scheme=row["grading_scheme"] or "",
        )
    if problems:
        raise StudyError(problems)
    return list(items.values())


def _read_conditions(
    tables: StoredTables, items: set[str], answers: KeyIndex, manifests: Manifests, templates: Mapping[str, str]
) -> tuple[dict[str, StudyCondition], list[StudyWave]]:
    """Check all solutions. Return their conditions by id, and their waves.

    `answers` gets the time of each answer by condition, item and epoch. Errors have no answer to grade.
    """
    problems: list[str] = []
    conditions: dict[str, StudyCondition] = {}
    first_epochs: dict[int, int] = {}
    for where, row in tables.rows(SOLUTIONS):
        row_problems = list(_find_solution_problems(where, row, items, answers))
        problems += row_problems
        if row_problems:
            if len(problems) > 10 * MAX_PROBLEMS:
                break
            continue
        wave = row.get("wave") or 0
        first_epochs[wave] = min(row["epoch"], first_epochs.get(wave, row["epoch"]))
        conditions.setdefault(row["condition_id"], _build_condition(row, templates))
    if problems:
        raise StudyError(problems)
    if not conditions:
        raise StudyError(["solutions.parquet: no solution"])
    waves = [_build_wave(number, first_epochs[number], manifests) for number in sorted(first_epochs)]
    return conditions, waves


def _find_solution_problems(where: str, row: TableRow, items: set[str], answers: KeyIndex) -> Iterator[str]:
    problems = require_columns(where, row, SOLUTION_COLUMNS)
    problems += [f"{where}: {name} must not be empty" for name in NEVER_NULL if row.get(name) in (None, "")]
    if row.get("wave") is not None and (type(row["wave"]) is not int or row["wave"] < 0):
        problems.append(f"{where}: wave is {row['wave']!r}, not a number from 0")
    yield from problems
    if problems:
        return
    if row["item_id"] not in items:
        yield f"{where}: the item {row['item_id']!r} is not in items.parquet"
    identity = (row["condition_id"], row["item_id"], row["epoch"])
    if not answers.add(identity, row["created_at"] if row["error"] is None else None):
        yield f"{where}: this condition, item and epoch are there twice"
    try:
        read_time(row["created_at"])
    except ValueError:
        yield f"{where}: created_at cannot be read: {row['created_at']!r}"


def _build_wave(number: int, first_epoch: int, manifests: Manifests) -> StudyWave:
    """Return the wave as its manifest has it, or with the epochs before its first one as offset."""
    wave = manifests.waves.get(number)
    return wave or StudyWave(number, "" if number == 0 else f"wave {number}", first_epoch - 1 if number else 0)


def _build_condition(row: TableRow, templates: Mapping[str, str]) -> StudyCondition:
    settings = {name: row[f"{name}_requested"] for name in SETTINGS if row.get(f"{name}_requested") is not None}
    if row.get("reasoning_effort"):
        settings["reasoning_effort"] = row["reasoning_effort"]
    if row.get("reasoning_tokens_requested") is not None:
        settings["extra"] = {"reasoning_tokens": row["reasoning_tokens_requested"]}
    text = templates.get(row["prompt_hash"] or "")
    model = row["model"]
    return StudyCondition(
        key=row["condition_id"],
        **split_model(model),
        prompt=name_prompt(row["prompt_name"], row["prompt_hash"] or ""),
        messages=build_turns(text) if text else (),
        sampler=name_sampler(row["model_config_name"]),
        settings=settings,
    )


# --- trials -----------------------------------------------------------------------------------------------------------


def _read_trials(
    tables: StoredTables, offsets: Mapping[int, int], scores: ScoreStore, manifests: Manifests
) -> Iterator[StudyTrial]:
    for where, row in tables.rows(SOLUTIONS):
        with refuse_unreadable(where):
            trial = _build_trial(where, row, offsets, scores, manifests)
        yield trial


def _build_trial(
    where: str, row: TableRow, offsets: Mapping[int, int], scores: ScoreStore, manifests: Manifests
) -> StudyTrial:
    wave = row.get("wave") or 0
    is_done = row["error"] is None
    stop = row["stop_reason"] or ""
    return StudyTrial(
        where=where,
        condition=row["condition_id"],
        item=row["item_id"],
        wave=wave,
        sample_idx=row["epoch"] - 1 - offsets[wave],
        is_done=is_done,
        answer=row["solution"] or "",
        raw_response=row["solution"] if is_done else None,
        finish_reason=STOPS.get(stop, stop)[:40],
        is_truncated=stop in STOPS,
        is_refused=stop == "content_filter",
        **read_usage(row),
        served_model=manifests.served.get((row["run_id"], row["condition_id"]), "")[:200],
        error_class="" if is_done else "unknown",
        error=row["error"] or "",
        completed_at=read_time(row["created_at"]),
        scores=scores.find(row["condition_id"], row["item_id"], row["epoch"]) if is_done else (),
    )


# --- notes ------------------------------------------------------------------------------------------------------------


def _list_notes(tables: StoredTables, conditions: Mapping[str, StudyCondition]) -> list[str]:
    counts: Counter[str] = Counter()
    configs: dict[str, set[str]] = defaultdict(set)
    for _, row in tables.rows(SOLUTIONS):
        counts["error"] += row["error"] is not None
        counts["empty"] += row["error"] is None and not (row["solution"] or "").strip()
        counts["unknown"] += read_usage(row)["cost_usd"] is None
        configs[row["prompt_name"] or ""].add(row["prompt_hash"] or "")
    notes = ["Messages, earlier attempts and response ids are in the tool's logs, which are not read."]
    placeholders = sum(not condition.messages for condition in conditions.values())
    notes += (
        [f"{placeholders} conditions hold a placeholder: no file has the hash of their prompt."] if placeholders else []
    )
    notes += [f"{counts['error']} solutions are errors: failed trials."] if counts["error"] else []
    notes += [f"{counts['empty']} solutions are empty answers."] if counts["empty"] else []
    notes += [f"The cost of {counts['unknown']} solutions is unknown."] if counts["unknown"] else []
    changed_prompts = [name for name, hashes in configs.items() if len(hashes) > 1]
    notes += [f"The prompt {name} changed during the study: each version is a condition." for name in changed_prompts]
    return notes


def _list_ledger_notes(tables: StoredTables) -> list[str]:
    """Return the sums of the ledger, which has costs that the rows do not have."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for where, row in tables.rows(LEDGER):
        with refuse_unreadable(where):
            sums[str(row["stage"])] += Decimal(str(row["usd"] or 0))
    totals = ", ".join(f"{stage} {usd:.4f} USD" for stage, usd in sorted(sums.items()))
    return [f"The ledger of all calls has {totals}. It also has calls that no row describes."] if sums else []


ITEMEVAL = StudyFormat(
    "itemeval",
    "itemeval",
    is_itemeval,
    read_itemeval,
    content="the study folder with items.parquet, solutions.parquet and gradings.parquet, also with prompts and YAML",
)
