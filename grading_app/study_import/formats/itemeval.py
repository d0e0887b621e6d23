"""itemeval: a study folder with the stores of items, solutions and gradings (Parquet), manifests and the study's YAML.

A solution is a trial with one attempt, a grading is a score; a judge's grading is also a call. The text of a prompt is
taken from a template file of the folder only if its hash is the one in the store.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.formats.itemeval_config import (
    BUILTIN_TEMPLATES,
    KEYS,
    PromptTemplate,
    find_config_file,
    read_config,
)
from grading_app.study_import.formats.itemeval_design import (
    build_rubric_turns,
    build_settings,
    build_turns,
    list_conditions,
    list_results_notes,
    name_prompt,
    name_sampler,
    read_design,
)
from grading_app.study_import.stored_tables import (
    Columns,
    KeyIndex,
    StoredTables,
    TableRow,
    find_column_problems,
    read_parquet_files,
)
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    Object,
    StudyCondition,
    StudyError,
    StudyItem,
    StudyJudge,
    StudyScore,
    StudyTrial,
    StudyWave,
    check_shape,
    dig_counts,
    read_decimal,
    read_finish,
    read_seconds,
    read_settings,
    read_time,
    refuse_unreadable,
    split_model,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import parse_json, read_objects_at, read_text

TOOL = "itemeval"
ONE_STORE = "one folder must have items.parquet and solutions.parquet"
SOLUTIONS, ITEMS, GRADINGS, LEDGER = "solutions", "items", "gradings", "ledger"
STORES = (SOLUTIONS, ITEMS, GRADINGS, LEDGER)
LONGEST_SCORER = 40
COPIES = {"export", "snapshots"}  # Folders with copies of the stores.
ITEM_COLUMNS: Columns = dict.fromkeys(
    ("item_id", "dataset_id", "dataset_revision", "input", "target", "metadata_json", "grading_scheme"), (str,)
)
USAGE_COLUMNS: Columns = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"), (int,)),
    **dict.fromkeys(("usd", "latency_s"), (float, int)),
}
SOLUTION_COLUMNS: Columns = {
    **dict.fromkeys(("run_id", "condition_id", "item_id", "model", "prompt_name", "prompt_hash"), (str,)),
    **dict.fromkeys(("solution", "stop_reason", "error", "model_config_name", "created_at"), (str,)),
    **USAGE_COLUMNS,
    "epoch": (int,),
}
REQUIRED_OF_SOLUTIONS = ("condition_id", "item_id", "epoch", "model", "created_at")
GRADING_COLUMNS: Columns = {
    **USAGE_COLUMNS,
    **dict.fromkeys(("grade_condition_id", "grade_condition_slug", "gen_condition_id", "item_id"), (str,)),
    **dict.fromkeys(("grade_kind", "grader_name", "grader_model", "rubric_name", "rubric_hash", "scorer_name"), (str,)),
    **dict.fromkeys(("score_raw", "parse_error", "reasoning", "judge_completion", "error", "created_at"), (str,)),
    "score": (float, int),
    "epoch": (int,),
    "parse_ok": (bool,),
}
REQUIRED_OF_GRADINGS = (
    "grade_condition_id", "grade_condition_slug", "gen_condition_id", "item_id", "epoch", "parse_ok",
)  # fmt: skip


class ManifestFile(Shape):
    """A file of the folder `manifests`."""

    run_id: str | None = None
    endpoints_effective: dict[str, Object] | None = None
    wave: int | None = None
    epoch_offset: int | None = None
    config: Object | None = None


@dataclass
class Manifests:
    """Facts of the manifests: waves by number, the served model by run and condition, the newest configuration."""

    waves: dict[int, StudyWave] = field(default_factory=dict)
    served: dict[tuple[str, str], str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def read_itemeval(stores: Sequence[Path], draft: StudyDraft) -> None:
    """Add the study of the only folder with stores."""
    if len(stores) != 1:
        names = ", ".join(store.name for store in stores)
        raise StudyError([f"{draft.path.name}: {ONE_STORE}; found: {names}"])
    store = stores[0]
    files = {table: store / f"{table}.parquet" for table in STORES}
    tables = read_parquet_files({table: file for table, file in files.items() if file.is_file()})
    manifests = _read_manifests(store, draft)
    _add_items(tables, draft)
    texts = [read_text(file).replace("\r\n", "\n") for file in sorted(draft.path.rglob("*.md"))]
    every_template = [PromptTemplate("", text) for text in (*BUILTIN_TEMPLATES.values(), *texts)]
    templates = {template.digest: template.text or "" for template in every_template}
    answers = _add_conditions(tables, draft, manifests, templates)
    scores = _read_scores(tables, answers, templates, draft)
    draft.name = str(manifests.config.get("study") or store.name)
    _add_design(draft, manifests)
    sources = {f"{row['dataset_id']}@{row['dataset_revision']}": None for _, row in tables.rows(ITEMS)}
    draft.source = f"Imported from {TOOL}: " + ", ".join(sources)[:1000]
    _add_trials(tables, scores, manifests, draft)
    # The ledger has costs that the rows do not have.
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in draft.follow(tables.rows(LEDGER)):
        sums[str(row.get("stage"))] += read_decimal(row.get("usd") or 0)
    totals = ", ".join(f"{stage} {usd:.4f} USD" for stage, usd in sorted(sums.items()))
    if sums:
        draft.notes.append(f"The ledger of all calls has {totals}. It also has calls that no row describes.")


# --- files ------------------------------------------------------------------------------------------------------------


def _find_stores(path: Path) -> list[Path]:
    """Return the folders with the stores of a study, without the copies in its exports."""
    folders = [file.parent for file in sorted(path.rglob("solutions.parquet"))] if path.is_dir() else []
    return [
        folder
        for folder in folders
        if not COPIES & set(folder.relative_to(path).parts) and (folder / "items.parquet").is_file()
    ]


def _read_manifests(store: Path, draft: StudyDraft) -> Manifests:
    facts = Manifests()
    for file in draft.follow((file.name, file) for file in sorted((store / "manifests").glob("*.json"))):
        content = parse_json(read_text(file).encode(), file.name)
        check_shape(content, ManifestFile)
        for condition, endpoint in (content.get("endpoints_effective") or {}).items():
            facts.served[str(content.get("run_id")), condition] = str(endpoint.get("served_model") or "")
        if content.get("stage") == "generate":
            number = content.get("wave") or 0
            label = str(content.get("wave_label") or "")
            facts.waves[number] = StudyWave(number, label, content.get("epoch_offset") or 0)
            facts.config = dict(content.get("config") or {})
    return facts


def _add_design(draft: StudyDraft, manifests: Manifests) -> None:
    """Add the name, the settings and the conditions without solutions of the configuration.

    It is the YAML in the folder, or else the newest manifest's copy. A copy of another version of the tool may be
    invalid: then the study is imported without its design.
    """
    file, content = find_config_file(draft.path) or (draft.path / "manifests", manifests.config)
    if not content:
        draft.notes.append("The folder has no configuration: the design is that of the solutions.")
        return
    try:
        config = read_config(file, content, draft.path)
    except StudyError as error:
        draft.notes += [f"The design is not taken. {problem}." for problem in error.problems[:MAX_PROBLEMS]]
        return
    conditions = draft.conditions.values()
    draft.name, draft.settings = config.content.study, build_settings(config.content)
    draft.planned = [
        planned
        for planned in list_conditions(config)
        if not any(
            (planned.model_id, planned.sampler) == (condition.model_id, condition.sampler)
            and (
                planned.prompt == condition.prompt
                or (not planned.messages and condition.prompt.startswith(planned.prompt))
            )
            for condition in conditions
        )
    ]
    draft.notes += list_results_notes(config, draft.planned)


# --- items and conditions ---------------------------------------------------------------------------------------------


def _add_items(tables: StoredTables, draft: StudyDraft) -> None:
    for row in draft.follow(tables.rows(ITEMS)):
        problems = list(find_column_problems(row, ITEM_COLUMNS, ()))
        draft.refuse(*problems)
        if problems:
            continue
        key = str(row["item_id"] or "")
        if key in draft.items:
            draft.refuse(f"the item {key!r} is there twice")
        try:
            metadata = json.loads(row["metadata_json"] or "{}")
        except (ValueError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict):
            draft.refuse("metadata_json is no JSON object")
            continue
        category = metadata.get("category")
        draft.items[key] = StudyItem(
            key,
            input=row["input"] or "",
            target=row["target"] or "",
            category=category if isinstance(category, str) else "",
            metadata=metadata,
            grading_scheme=row["grading_scheme"] or "",
        )
    draft.check()


def _add_conditions(
    tables: StoredTables, draft: StudyDraft, manifests: Manifests, templates: Mapping[str, str]
) -> KeyIndex:
    """Check all solutions, and add their conditions and waves.

    Return the time of each answer by condition, item and epoch. Errors have no answer to grade.
    """
    answers = KeyIndex()
    first_epochs: dict[int, int] = {}
    for row in draft.follow(tables.rows(SOLUTIONS)):
        problems = list(_find_solution_problems(row, draft, answers))
        draft.refuse(*problems)
        if problems:
            continue
        wave = row.get("wave") or 0
        first_epochs[wave] = min(row["epoch"], first_epochs.get(wave, row["epoch"]))
        settings = read_settings(row, "_requested")
        if row.get("reasoning_effort"):
            settings["reasoning_effort"] = row["reasoning_effort"]
        if row.get("reasoning_tokens_requested") is not None:
            settings["extra"] = {"reasoning_tokens": row["reasoning_tokens_requested"]}
        text = templates.get(row["prompt_hash"] or "")
        draft.add_condition(
            StudyCondition(
                key=row["condition_id"],
                **split_model(row["model"]),
                prompt=name_prompt(row["prompt_name"], row["prompt_hash"] or ""),
                messages=build_turns(text) if text else (),
                sampler=name_sampler(row["model_config_name"]),
                settings=settings,
            )
        )
    draft.check()
    if not draft.conditions:
        raise StudyError(["solutions.parquet: no solution"])
    draft.waves = []  # As their manifests have them, or with the epochs before their first one as offset.
    for number, epoch in sorted(first_epochs.items()):
        own = StudyWave(number, "" if number == 0 else f"wave {number}", epoch - 1 if number else 0)
        draft.waves.append(manifests.waves.get(number) or own)
    return answers


def _find_solution_problems(row: TableRow, draft: StudyDraft, answers: KeyIndex) -> Iterator[str]:
    problems = list(find_column_problems(row, SOLUTION_COLUMNS, REQUIRED_OF_SOLUTIONS))
    if row.get("wave") is not None and (type(row["wave"]) is not int or row["wave"] < 0):
        problems.append(f"wave is {row['wave']!r}, not a number from 0")
    yield from problems
    if problems:
        return
    if row["item_id"] not in draft.items:
        yield f"the item {row['item_id']!r} is not in items.parquet"
    identity = (row["condition_id"], row["item_id"], row["epoch"])
    if not answers.add(identity, row["created_at"] if row["error"] is None else None):
        yield "this condition, item and epoch are there twice"
    try:
        read_time(row["created_at"])
    except ValueError:
        yield f"created_at cannot be read: {row['created_at']!r}"


# --- scores and judges -----------------------------------------------------------------------------------------------


@dataclass
class ScoreStore:
    """The gradings of a study. places: offsets of the rows of each answer in `file`. names: scorers by condition."""

    file: Path | None = None
    places: KeyIndex = field(default_factory=KeyIndex)
    names: dict[str, str] = field(default_factory=dict)
    judges: dict[str, StudyJudge] = field(default_factory=dict)

    def find(self, condition: str, item: str, epoch: int) -> tuple[StudyScore, ...]:
        """Return the scores of an answer."""
        places = self.places.list_numbers((condition, item, epoch))
        if self.file is None or not places:
            return ()
        scores = []
        for row in read_objects_at(self.file, places):
            where = f"{GRADINGS}.parquet, {row['grade_condition_id']} of {row['item_id']!r}, epoch {row['epoch']}"
            with refuse_unreadable(where):
                scorer, reply = self.names[row["grade_condition_id"]], row["judge_completion"] or ""
                verdict = None
                if scorer in self.judges:
                    verdict = StudyTrial(
                        where=where, condition=row["grade_condition_id"], item=row["item_id"], sample_idx=0,
                        is_done=True, answer=reply, completed_at=read_time(row["created_at"]),
                        **_read_usage(row),
                    )  # fmt: skip
                scores.append(
                    StudyScore(
                        scorer=scorer,
                        value=float(row["score"]) if row["parse_ok"] and row["score"] is not None else None,
                        raw=(row["score_raw"] or "")[:2000],
                        error="" if row["parse_ok"] else (row["parse_error"] or "empty_reply")[:40],
                        reasoning=row["reasoning"] or reply,
                        verdict=verdict,
                    )
                )
        return tuple(scores)


def _read_scores(
    tables: StoredTables, answers: KeyIndex, templates: Mapping[str, str], draft: StudyDraft
) -> ScoreStore:
    """Return the gradings of the study, if it has any. answers: their times. templates: by hash."""
    if not tables.has(GRADINGS):
        draft.notes.append("gradings.parquet is not in the folder: no scores.")
        return ScoreStore()
    store, identities = ScoreStore(tables.file(GRADINGS)), KeyIndex()
    slugs: dict[str, dict[str, TableRow]] = defaultdict(dict)
    for place, row in draft.follow(tables.placed_rows(GRADINGS)):
        answer = (row.get("gen_condition_id"), row.get("item_id"), row.get("epoch"))
        problems = list(find_column_problems(row, GRADING_COLUMNS, REQUIRED_OF_GRADINGS))
        if not problems and not identities.add((row["grade_condition_id"], *answer)):
            problems = ["this grade condition, answer and epoch are there twice"]
        draft.refuse(*problems)
        if problems:
            continue
        answer_time = answers.get(answer)
        draft.count("pending", row["error"] is not None)
        draft.count("without answer", row["error"] is None and answer_time is None)
        if row["error"] is None and answer_time is not None:
            draft.count("older", (row["created_at"] or "") < answer_time)
            draft.count("unreadable", not row["parse_ok"])
            store.places.append_number(answer, place)
            slugs[row["scorer_name"] or row["grade_condition_slug"]].setdefault(row["grade_condition_id"], row)
    draft.check()
    _name_scorers(store, slugs, templates)
    draft.judges = store.judges
    return store


def _name_scorers(store: ScoreStore, slugs: Mapping[str, Mapping[str, TableRow]], templates: Mapping[str, str]) -> None:
    """Name each grade condition by its slug. Names that are too long, or not unique, end with the condition's hash."""
    short = Counter(slugify_name(slug)[:LONGEST_SCORER] for slug in slugs)
    for slug, rows in slugs.items():
        name = slugify_name(slug)
        is_unique = len(rows) == 1 and len(slug) <= LONGEST_SCORER and short[name[:LONGEST_SCORER]] == 1
        for key, row in rows.items():
            digest = key.rpartition("--")[2][:12]
            scorer = name if is_unique else f"{name[: LONGEST_SCORER - 13]}-{slugify_name(digest)}"
            store.names[key] = scorer
            if row["grade_kind"] == "judge":
                model, rubric_hash = row["grader_model"] or "unknown", row["rubric_hash"] or ""
                text = templates.get(rubric_hash)
                store.judges[scorer] = StudyJudge(
                    name=row["grader_name"] or model,
                    condition=StudyCondition(
                        key=key,
                        **split_model(model),
                        prompt=row["rubric_name"] or "rubric",
                        messages=build_rubric_turns(text) if text else (),
                        sampler="itemeval-judge",
                    ),
                    rubric_hash=rubric_hash,
                    source_id=key,
                )


# --- trials -----------------------------------------------------------------------------------------------------------


def _add_trials(tables: StoredTables, scores: ScoreStore, manifests: Manifests, draft: StudyDraft) -> None:
    offsets = {wave.number: wave.epoch_offset for wave in draft.waves}
    hashes: dict[str, set[str]] = defaultdict(set)  # Of each prompt, by its name.
    for row in draft.follow(tables.rows(SOLUTIONS)):
        wave, is_done, usage = row.get("wave") or 0, row["error"] is None, _read_usage(row)
        draft.count("error", not is_done)
        draft.count("empty", is_done and not (row["solution"] or "").strip())
        draft.count("unknown", usage["cost_usd"] is None)
        hashes[row["prompt_name"] or ""].add(row["prompt_hash"] or "")
        draft.add_trial(
            row["condition_id"],
            row["item_id"],
            sample_idx=row["epoch"] - 1 - offsets[wave],
            wave=wave,
            is_done=is_done,
            answer=row["solution"] or "",
            **read_finish(row["stop_reason"]),
            **usage,
            served_model=manifests.served.get((row["run_id"], row["condition_id"]), "")[:200],
            error=row["error"] or "",
            completed_at=read_time(row["created_at"]),
            scores=scores.find(row["condition_id"], row["item_id"], row["epoch"]) if is_done else (),
        )
    draft.count("placeholder", sum(not condition.messages for condition in draft.conditions.values()))
    draft.notes += [
        f"The prompt {name} changed during the study: each version is a condition."
        for name, versions in hashes.items()
        if len(versions) > 1
    ]


def _read_usage(row: TableRow) -> dict[str, Any]:
    """Return the usage of a row's call. The store counts input tokens without those of the provider's cache.

    A row that was repeated from the tool's cache, or that failed, has 0 USD and no tokens: what was paid is not in it.
    """
    cached = [row["cache_read_tokens"], *dig_counts(row, {"written": "cache_write_tokens"}).values()]
    is_unpaid = row["usd"] == 0 and row["input_tokens"] is None and row["output_tokens"] is None
    return {
        "input_tokens": None if row["input_tokens"] is None else row["input_tokens"] + sum(filter(None, cached)),
        "output_tokens": row["output_tokens"],
        "reasoning_tokens": row["reasoning_tokens"],
        "cache_read_tokens": cached[0],
        "cache_write_tokens": cached[1],
        "cost_usd": None if row["usd"] is None or is_unpaid else Decimal(str(row["usd"])),
        "latency_ms": read_seconds(row["latency_s"]),
    }


ITEMEVAL = StudyFormat(
    name=TOOL,
    label="itemeval",
    content="the study folder with items.parquet, solutions.parquet and gradings.parquet, also with prompts and YAML",
    find=_find_stores,
    missing=f"{ONE_STORE}; found: none",
    read=read_itemeval,
    is_design=lambda content: content.keys() >= KEYS,
    read_design=read_design,
    notes=("Messages, earlier attempts and response ids are in the tool's logs, which are not read.",),
    count_notes={
        "placeholder": "{} conditions hold a placeholder: no file has the hash of their prompt.",
        "error": "{} solutions are errors: failed trials.",
        "empty": "{} solutions are empty answers.",
        "unknown": "The cost of {} solutions is unknown.",
        "pending": "{} gradings failed and are left out: the tool would repeat them.",
        "without answer": "{} gradings are of answers that are not in the store, or that failed: they are left out.",
        "older": "{} gradings are older than their answers, which may have been another text when they were graded.",
        "unreadable": "{} gradings have no score: the grader's reply could not be read.",
    },
)
