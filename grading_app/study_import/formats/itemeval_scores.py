"""itemeval: the store of gradings, as scores and calls of judges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.formats.itemeval_design import build_rubric_turns
from grading_app.study_import.stored_tables import Columns, KeyIndex, StoredTables, TableRow, find_column_problems
from grading_app.study_import.study import (
    StudyCondition,
    StudyJudge,
    StudyScore,
    StudyTrial,
    dig_counts,
    read_seconds,
    read_time,
    refuse_unreadable,
    split_model,
)
from grading_app.study_import.study_draft import StudyDraft
from grading_app.study_import.text_files import read_objects_at

GRADINGS = "gradings"
LONGEST_SCORER = 40
USAGE_COLUMNS: Columns = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"), (int,)),
    **dict.fromkeys(("usd", "latency_s"), (float, int)),
}
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


def read_usage(row: TableRow) -> dict[str, Any]:
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
                        **read_usage(row),
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


def read_scores(tables: StoredTables, answers: KeyIndex, templates: Mapping[str, str], draft: StudyDraft) -> ScoreStore:
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
