"""The gradings of an itemeval study, found by the answer that they grade. A judge's grading is also a call."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.itemeval_design import build_rubric_turns
from grading_app.study_import.key_index import KeyIndex
from grading_app.study_import.stored_tables import StoredTables, TableRow, require_columns
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    StudyCondition,
    StudyError,
    StudyJudge,
    StudyScore,
    StudyTrial,
    refuse_unreadable,
    split_model,
)

GRADINGS = "gradings"
LONGEST_SCORER = 40
USAGE_COLUMNS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"), (int,)),
    **dict.fromkeys(("usd", "latency_s"), (float, int)),
}
COLUMNS: dict[str, tuple[type, ...]] = {
    **USAGE_COLUMNS,
    **dict.fromkeys(("grade_condition_id", "grade_condition_slug", "gen_condition_id", "item_id"), (str,)),
    **dict.fromkeys(("grade_kind", "grader_name", "grader_model", "rubric_name", "rubric_hash", "scorer_name"), (str,)),
    **dict.fromkeys(("score_raw", "parse_error", "reasoning", "judge_completion", "error", "created_at"), (str,)),
    "score": (float, int),
    "epoch": (int,),
    "parse_ok": (bool,),
}
JUDGE = "judge"


def read_usage(row: TableRow) -> dict[str, Any]:
    """Return the usage of a row's call. The store counts input tokens without those of the provider's cache.

    A row that was repeated from the tool's cache, or that failed, has 0 USD and no tokens: what was paid is not in it.
    """
    cached = [row["cache_read_tokens"], row.get("cache_write_tokens")]
    is_unpaid = row["usd"] == 0 and row["input_tokens"] is None and row["output_tokens"] is None
    return {
        "input_tokens": None if row["input_tokens"] is None else row["input_tokens"] + sum(filter(None, cached)),
        "output_tokens": row["output_tokens"],
        "reasoning_tokens": row["reasoning_tokens"],
        "cache_read_tokens": cached[0],
        "cache_write_tokens": cached[1],
        "cost_usd": None if row["usd"] is None or is_unpaid else Decimal(str(row["usd"])),
        "latency_ms": None if row["latency_s"] is None else round(1000 * row["latency_s"]),
    }


def read_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass
class ScoreStore:
    """The scores of a study. places: offsets of the rows of each answer in `file`. names: scorers by condition."""

    file: Path | None = None
    places: KeyIndex = field(default_factory=KeyIndex)
    names: dict[str, str] = field(default_factory=dict)
    judges: dict[str, StudyJudge] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def find(self, condition: str, item: str, epoch: int) -> tuple[StudyScore, ...]:
        """Return the scores of an answer."""
        places = self.places.list_numbers((condition, item, epoch))
        if self.file is None or not places:
            return ()
        with self.file.open("rb") as lines:
            return tuple(self._score(lines, place) for place in places)

    def _score(self, lines: Any, place: int) -> StudyScore:
        lines.seek(place)
        row = json.loads(lines.readline())
        where = f"{GRADINGS}.parquet, {row['grade_condition_id']} of {row['item_id']!r}, epoch {row['epoch']}"
        scorer = self.names[row["grade_condition_id"]]
        with refuse_unreadable(where):
            return StudyScore(
                scorer=scorer,
                value=float(row["score"]) if row["parse_ok"] and row["score"] is not None else None,
                raw=(row["score_raw"] or "")[:2000],
                error="" if row["parse_ok"] else (row["parse_error"] or "empty_reply")[:40],
                reasoning=row["reasoning"] or row["judge_completion"] or "",
                verdict=_build_verdict(where, row) if scorer in self.judges else None,
            )


def _build_verdict(where: str, row: TableRow) -> StudyTrial:
    reply = row["judge_completion"] or ""
    return StudyTrial(
        where=where,
        condition=row["grade_condition_id"],
        item=row["item_id"],
        sample_idx=0,
        is_done=True,
        answer=reply,
        raw_response=reply,
        completed_at=read_time(row["created_at"]) if row["created_at"] else None,
        **read_usage(row),
    )


def read_scores(tables: StoredTables, answers: KeyIndex, templates: Mapping[str, str]) -> ScoreStore:
    """Return the gradings of the study, if it has any. `answers`: when each answer was written. `templates`: by hash.

    Raise StudyError for a row that cannot be read.
    """
    if not tables.has(GRADINGS):
        return ScoreStore(notes=["gradings.parquet is not in the folder: no scores."])
    store = ScoreStore(tables.file(GRADINGS))
    problems: list[str] = []
    counts: Counter[str] = Counter()
    slugs: dict[str, dict[str, TableRow]] = defaultdict(dict)
    identities = KeyIndex()
    place = 0
    for (where, row), length in zip(tables.rows(GRADINGS), _measure_lines(tables.file(GRADINGS)), strict=True):
        row_problems = _find_problems(where, row, identities)
        problems += row_problems
        if len(problems) > 10 * MAX_PROBLEMS:
            break
        if not row_problems and _is_taken(row, answers, counts):
            answer = (row["gen_condition_id"], row["item_id"], row["epoch"])
            store.places.append_number(answer, place)
            slugs[row["scorer_name"] or row["grade_condition_slug"]].setdefault(row["grade_condition_id"], row)
        place += length
    if problems:
        raise StudyError(problems)
    _name_scorers(store, slugs, templates)
    store.notes = _list_notes(counts)
    return store


def _measure_lines(file: Path) -> Iterator[int]:
    with file.open("rb") as lines:
        yield from map(len, lines)


def _find_problems(where: str, row: TableRow, identities: KeyIndex) -> list[str]:
    problems = require_columns(where, row, COLUMNS)
    keys = ("grade_condition_id", "grade_condition_slug", "gen_condition_id", "item_id", "epoch", "parse_ok")
    problems += [f"{where}: {name} must not be empty" for name in keys if row.get(name) in (None, "")]
    if problems:
        return problems
    identity = (row["grade_condition_id"], row["gen_condition_id"], row["item_id"], row["epoch"])
    return [] if identities.add(identity) else [f"{where}: this grade condition, answer and epoch are there twice"]


def _is_taken(row: TableRow, answers: KeyIndex, counts: Counter[str]) -> bool:
    """Return whether the row grades an answer of the study. `counts` gets the reasons for notes."""
    answer_time = answers.get((row["gen_condition_id"], row["item_id"], row["epoch"]))
    if row["error"] is not None:
        counts["pending"] += 1
    elif answer_time is None:
        counts["without answer"] += 1
    else:
        counts["older"] += (row["created_at"] or "") < answer_time
        counts["unreadable"] += not row["parse_ok"]
        return True
    return False


def _name_scorers(store: ScoreStore, slugs: Mapping[str, Mapping[str, TableRow]], templates: Mapping[str, str]) -> None:
    """Name each grade condition by its slug. Names that are too long, or not unique, end with the condition's hash."""
    short = Counter(slugify_name(slug)[:LONGEST_SCORER] for slug in slugs)
    for slug, rows in slugs.items():
        name = slugify_name(slug)
        is_unique = len(rows) == 1 and len(slug) <= LONGEST_SCORER and short[name[:LONGEST_SCORER]] == 1
        for condition, row in rows.items():
            digest = condition.rpartition("--")[2][:12]
            scorer = name if is_unique else f"{name[: LONGEST_SCORER - 13]}-{slugify_name(digest)}"
            store.names[condition] = scorer
            if row["grade_kind"] == JUDGE:
                store.judges[scorer] = _build_judge(row, templates)


def _build_judge(row: TableRow, templates: Mapping[str, str]) -> StudyJudge:
    model, rubric_hash = row["grader_model"] or "unknown", row["rubric_hash"] or ""
    text = templates.get(rubric_hash)
    return StudyJudge(
        name=row["grader_name"] or model,
        condition=StudyCondition(
            key=row["grade_condition_id"],
            **split_model(model),
            prompt=row["rubric_name"] or "rubric",
            messages=build_rubric_turns(text) if text else (),
            sampler="itemeval-judge",
        ),
        rubric_hash=rubric_hash,
        source_id=row["grade_condition_id"],
    )


def _list_notes(counts: Counter[str]) -> list[str]:
    texts = {
        "pending": "{} gradings failed and are left out: the tool would repeat them.",
        "without answer": "{} gradings are of answers that are not in the store, or that failed: they are left out.",
        "older": "{} gradings are older than their answers, which may have been another text when they were graded.",
        "unreadable": "{} gradings have no score: the grader's reply could not be read.",
    }
    return [text.format(counts[reason]) for reason, text in texts.items() if counts[reason]]
