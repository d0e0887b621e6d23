"""The gradings of an itemeval study, found by the answer that they grade."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.key_index import KeyIndex
from grading_app.study_import.stored_tables import StoredTables, TableRow, require_columns
from grading_app.study_import.study import MAX_PROBLEMS, StudyError, StudyScore

GRADINGS = "gradings"
LONGEST_SCORER = 40
COLUMNS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("grade_condition_id", "grade_condition_slug", "gen_condition_id", "item_id"), (str,)),
    **dict.fromkeys(("grade_kind", "grader_name", "grader_model", "rubric_name", "rubric_hash", "scorer_name"), (str,)),
    **dict.fromkeys(("score_raw", "parse_error", "reasoning", "judge_completion", "error", "created_at"), (str,)),
    "score": (float, int),
    "epoch": (int,),
    "parse_ok": (bool,),
}
FACTS = ("grader_model", "rubric_name", "rubric_hash")


@dataclass
class ScoreStore:
    """The scores of a study. places: offsets of the rows of each answer in `file`. graders: parameters by scorer."""

    file: Path | None = None
    places: KeyIndex = field(default_factory=KeyIndex)
    names: dict[str, str] = field(default_factory=dict)
    graders: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        return StudyScore(
            scorer=self.names[row["grade_condition_id"]],
            value=float(row["score"]) if row["parse_ok"] and row["score"] is not None else None,
            raw=(row["score_raw"] or "")[:2000],
            error="" if row["parse_ok"] else (row["parse_error"] or "empty_reply")[:40],
            reasoning=row["reasoning"] or row["judge_completion"] or "",
        )


def read_scores(tables: StoredTables, answers: KeyIndex) -> ScoreStore:
    """Return the gradings of the study, if it has any. `answers`: when each answer was written.

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
    _name_scorers(store, slugs)
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


def _name_scorers(store: ScoreStore, slugs: Mapping[str, Mapping[str, TableRow]]) -> None:
    """Name each grade condition by its slug. Names that are too long, or not unique, end with the condition's hash."""
    short = Counter(slugify_name(slug)[:LONGEST_SCORER] for slug in slugs)
    for slug, rows in slugs.items():
        name = slugify_name(slug)
        is_unique = len(rows) == 1 and len(slug) <= LONGEST_SCORER and short[name[:LONGEST_SCORER]] == 1
        for condition, row in rows.items():
            digest = condition.rpartition("--")[2][:12]
            scorer = name if is_unique else f"{name[: LONGEST_SCORER - 13]}-{slugify_name(digest)}"
            store.names[condition] = scorer
            store.graders[scorer] = {fact: row[fact] for fact in FACTS if row.get(fact)}


def _list_notes(counts: Counter[str]) -> list[str]:
    texts = {
        "pending": "{} gradings failed and are left out: the tool would repeat them.",
        "without answer": "{} gradings are of answers that are not in the store, or that failed: they are left out.",
        "older": "{} gradings are older than their answers, which may have been another text when they were graded.",
        "unreadable": "{} gradings have no score: the grader's reply could not be read.",
    }
    return [text.format(counts[reason]) for reason, text in texts.items() if counts[reason]]
