"""The rows of a study's answers: trials, attempts and gradings, in batches."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.utils import timezone

from evalsite.lib.text.hashing import hash_content, slugify_name
from grading_app.models import GradeCondition, Grading
from grading_app.study_import.row_writer import reserve_keys, write_rows
from grading_app.study_import.study import USAGE, StudyCall, StudyError, StudyTrial
from grading_app.study_import.study_checks import check_trial
from runs_app.llm.failures import remove_key_patterns
from runs_app.llm.keys import list_secrets, redact
from runs_app.models import Attempt, Condition, Experiment, Run, Trial, Wave

Row = dict[str, Any]  # By the columns of the database.
Identity = tuple[int, int | None, int | None, int]  # Run, item, dimension, repetition.
FIRST_CHANGES = 3
LONGEST_SCORER = 40
# LIMIT keeps the planner from joining the whole table: each trial is one look into the index of the unique constraint.
FIND_STORED = """
SELECT wanted.place, stored.id, stored.status, stored.answer, stored.rating
FROM unnest(%(runs)s::bigint[], %(items)s::bigint[], %(dimensions)s::bigint[], %(samples)s::int[])
    WITH ORDINALITY AS wanted (run, item, dimension, sample_idx, place)
CROSS JOIN LATERAL (
    SELECT t.* FROM runs_app_trial t WHERE t.run_id = wanted.run AND t.item_id = wanted.item
        AND t.dimension_id = wanted.dimension AND t.sample_idx = wanted.sample_idx
        AND t.subject_id IS NULL AND t.rival_id IS NULL
    UNION ALL
    SELECT t.* FROM runs_app_trial t WHERE t.run_id = wanted.run AND t.item_id = wanted.item
        AND wanted.dimension IS NULL AND t.dimension_id IS NULL AND t.sample_idx = wanted.sample_idx
        AND t.subject_id IS NULL AND t.rival_id IS NULL
    LIMIT 1
) AS stored
"""
OUTCOME = ("status", "answer", "rating")
CALL_COLUMNS = (*USAGE, "cost_usd", "finish_reason", "response_id", "served_model", "error")


@dataclass
class ImportReport:
    """The counts of an import. skipped: trials that were there already. notes: what was not taken, and why.

    recovered: trials that failed here and are done in the files. changed: trials with another answer in the files than
    here; first_changes: places of the first ones. samples: the largest number of repetitions. verdicts: the gradings by
    judges. attempts: with the judges' calls.
    """

    experiment: Experiment
    items: int = 0
    conditions: int = 0
    trials: int = 0
    failed: int = 0
    attempts: int = 0
    gradings: int = 0
    verdicts: int = 0
    skipped: int = 0
    recovered: int = 0
    changed: int = 0
    first_changes: list[str] = field(default_factory=list)
    samples: int = 1
    notes: list[str] = field(default_factory=list)


@dataclass
class StudyRows:
    """The rows that the trials of a study refer to, by the keys of the study.

    last_trial: the largest key of a trial before this import. runs: by the keys of condition and wave. scorers: by
    name; those of judges are there from the start.
    """

    items: dict[str, int]
    dimensions: dict[str, int]
    conditions: dict[str, Condition]
    waves: dict[int, Wave]
    last_trial: int = 0
    runs: dict[tuple[int, int], Run] = field(default_factory=dict)
    scorers: dict[str, GradeCondition] = field(default_factory=dict)

    def get_run(self, condition: Condition, wave: int) -> Run:
        """Return the run of a condition in a wave, and create it if it is new."""
        key = (condition.pk, wave)
        if key not in self.runs:
            self.runs[key] = Run.objects.get_or_create(
                condition=condition,
                wave=self.waves[wave],
                defaults={"experiment_id": condition.experiment_id, "status": Run.Status.DONE},
            )[0]
        return self.runs[key]

    def get_scorer(self, name: str, experiment: Experiment) -> GradeCondition:
        """Return the grade condition of a scorer, and create it if it is new."""
        if name not in self.scorers:
            slug = slugify_name(name)[:LONGEST_SCORER]
            if slug in {condition.scorer for condition in self.scorers.values()}:
                slug = f"{slug[: LONGEST_SCORER - 13]}-{hash_content(name)[:12]}"
            self.scorers[name] = GradeCondition.objects.get_or_create(
                experiment=experiment,
                grade_condition_id=f"imported-{slug}",
                defaults={"scorer": slug, "parameters": {"imported": experiment.imported_from}},
            )[0]
        return self.scorers[name]


def write_batch(batch: list[StudyTrial], rows: StudyRows, experiment: Experiment, report: ImportReport) -> None:
    """Write the trials that are not stored yet, and the scores that the stored ones do not have yet.

    Raise StudyError if the files have two different answers to a trial.
    """
    trials = [_build_trial(study_trial, rows) for study_trial in batch]
    trials_by_identity = _find_stored_trials(trials)
    new_trials: list[tuple[StudyTrial, Row]] = []
    repeated_trials: list[tuple[StudyTrial, Row]] = []
    problems: list[str] = []
    for study_trial, trial in zip(batch, trials, strict=True):
        earlier = trials_by_identity.setdefault(_get_identity(trial), trial)
        if earlier is trial:
            new_trials.append((study_trial, trial))
            continue
        repeated_trials.append((study_trial, earlier))
        if all(trial[name] == earlier[name] for name in OUTCOME):
            continue
        if earlier.get("id", math.inf) > rows.last_trial:
            problems.append(f"{study_trial.where}: an earlier row has the same trial with another outcome")
        elif study_trial.is_done and earlier["status"] == Trial.Status.FAILED:  # The stored outcome stays.
            report.recovered += 1
        else:
            report.changed += 1
            report.first_changes += [study_trial.where] if len(report.first_changes) < FIRST_CHANGES else []
    if problems:
        raise StudyError(problems)
    report.attempts += _write_trials(new_trials)
    _write_gradings(new_trials, repeated_trials, rows, experiment, report)
    report.samples = max(report.samples, *(study_trial.sample_idx + 1 for study_trial in batch))
    report.trials += len(new_trials)
    report.skipped += len(repeated_trials)
    report.failed += sum(not study_trial.is_done for study_trial, _ in new_trials)


def _write_trials(trials: list[tuple[StudyTrial, Row]]) -> int:
    """Write these answers or verdicts with their attempts, and give them keys. Return the number of attempts."""
    for (_, trial), key in zip(trials, reserve_keys(Trial, len(trials)), strict=True):
        trial["id"] = key
    attempts = [attempt for study_trial, trial in trials for attempt in _build_attempts(study_trial, trial)]
    write_rows(Trial, [trial for _, trial in trials])
    write_rows(Attempt, attempts)
    return len(attempts)


def _get_identity(trial: Row) -> Identity:
    return trial["run_id"], trial["item_id"], trial["dimension_id"], trial["sample_idx"]


def _find_stored_trials(trials: list[Row]) -> dict[Identity, Row]:
    """Return the stored trials with the identities of these, with their keys and outcomes. Costs one query."""
    identities = [_get_identity(trial) for trial in trials]
    columns = zip(("runs", "items", "dimensions", "samples"), map(list, zip(*identities, strict=True)), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(FIND_STORED, dict(columns))
        return {
            identities[place - 1]: dict(zip(("id", *OUTCOME), values, strict=True))
            for place, *values in cursor.fetchall()
        }


def _write_gradings(
    new_trials: list[tuple[StudyTrial, Row]],
    repeated_trials: list[tuple[StudyTrial, Row]],
    rows: StudyRows,
    experiment: Experiment,
    report: ImportReport,
) -> None:
    """Write the scores of these trials with the judges' calls.

    A stored trial may lack scores that the tool gave after an earlier import.
    """
    repeated_keys = {trial["id"] for study_trial, trial in repeated_trials if study_trial.scores}
    stored = Grading.objects.filter(trial__in=repeated_keys).values_list("trial", "condition") if repeated_keys else ()
    graded = set(stored)
    gradings: list[Row] = []
    verdicts: list[tuple[StudyTrial, Row]] = []
    for study_trial, trial in (*new_trials, *repeated_trials):
        for score in study_trial.scores:
            condition = rows.get_scorer(score.scorer, experiment)
            if (trial["id"], condition.pk) in graded:
                continue
            graded.add((trial["id"], condition.pk))
            verdict: Row = {}
            if score.verdict is not None and condition.judge_condition is not None:
                run = rows.get_run(condition.judge_condition, study_trial.wave)
                verdict = _fill_trial(score.verdict, rows, run, sample_idx=0, subject_id=trial["id"])
                verdicts.append((score.verdict, verdict))
            gradings.append({
                "trial_id": trial["id"],
                "condition_id": condition.pk,
                "score": score.value,
                "score_raw": score.raw,
                "parse_ok": score.value is not None,
                "parse_error": "" if score.value is not None else (score.error or "no_score")[:40],
                "reasoning": score.reasoning,
                "detail": score.detail,
                "judged_by_id": verdict,
                "created_at": timezone.now(),
            })  # fmt: skip
    report.attempts += _write_trials(verdicts)
    write_rows(Grading, [{**grading, "judged_by_id": grading["judged_by_id"].get("id")} for grading in gradings])
    report.verdicts += len(verdicts)
    report.gradings += len(gradings)


def _build_trial(study_trial: StudyTrial, rows: StudyRows) -> Row:
    check_trial(study_trial)
    references: Mapping[str, Mapping[Any, Any]] = {"item": rows.items, "condition": rows.conditions, "wave": rows.waves}
    for name, keys in references.items():
        if getattr(study_trial, name) not in keys:
            raise StudyError([f"{study_trial.where}: unknown {name} {getattr(study_trial, name)!r}"])
    if study_trial.dimension is not None and study_trial.dimension not in rows.dimensions:
        raise StudyError([f"{study_trial.where}: unknown dimension {study_trial.dimension!r}"])
    run = rows.get_run(rows.conditions[study_trial.condition], study_trial.wave)
    return _fill_trial(study_trial, rows, run, sample_idx=study_trial.sample_idx)


def _fill_trial(
    study_trial: StudyTrial, rows: StudyRows, run: Run, *, sample_idx: int, subject_id: int | None = None
) -> Row:
    """Return the row of an answer, or of the verdict on the answer `subject_id`. Its key comes later."""
    is_answer = study_trial.is_done and study_trial.raw_response in (None, study_trial.answer)
    is_unreadable = study_trial.is_done and study_trial.dimension is not None and study_trial.rating is None
    return {
        **{name: getattr(study_trial, name) for name in CALL_COLUMNS},
        "run_id": run.pk,
        "item_id": rows.items[study_trial.item],
        "dimension_id": rows.dimensions[study_trial.dimension] if study_trial.dimension is not None else None,
        "sample_idx": sample_idx,
        "subject_id": subject_id,
        "status": Trial.Status.DONE if study_trial.is_done else Trial.Status.FAILED,
        "attempts": study_trial.attempts,
        "rating": study_trial.rating,
        "parse_error": "no_rating_found" if is_unreadable else "",
        "answer": study_trial.answer,
        "reasoning": study_trial.reasoning,
        "raw_response": None if is_answer else study_trial.raw_response,
        "messages": study_trial.messages,
        "truncated": study_trial.is_truncated,
        "refused": study_trial.is_refused,
        "from_cache": study_trial.is_cached,
        "error_class": "" if study_trial.is_done else study_trial.error_class or "unknown",
        "error": _redact_error(study_trial.error),
        "claimed_at": study_trial.claimed_at,
        "completed_at": study_trial.completed_at,
    }


def _redact_error(error: str) -> str:
    """Return the error of a foreign tool without keys: a traceback may quote one."""
    return remove_key_patterns(redact(error, list_secrets())) if error else ""


def _build_attempts(study_trial: StudyTrial, trial: Row) -> Iterator[Row]:
    """Yield the calls of a trial. Calls that the source does not describe have an unknown cost."""
    unknown_call = StudyCall(error="" if study_trial.is_done else study_trial.error)
    for place in range(study_trial.attempts - 1):
        call = (*study_trial.earlier_calls, *[unknown_call] * study_trial.attempts)[place]
        yield _build_attempt(call, trial, Attempt.Outcome.TRANSIENT, token=uuid.uuid4())
    token = uuid.uuid4()
    *first_calls, last_call = study_trial.calls or (study_trial,)
    for place, call in enumerate(first_calls):
        outcome = Attempt.Outcome.TRANSIENT if call.error else Attempt.Outcome.OK
        yield _build_attempt(call, trial, outcome, token=token, call=place)
    yield _build_attempt(
        last_call,
        trial,
        Attempt.Outcome.OK if study_trial.is_done else Attempt.Outcome.PERMANENT,
        token=token,
        call=len(first_calls),
        empty=study_trial.is_done and study_trial.answer == "",
        truncated=study_trial.is_truncated,
        refused=study_trial.is_refused,
        unparsed=bool(trial["parse_error"]),
        error_class=trial["error_class"],
        error=trial["error"],
    )


def _build_attempt(call: StudyCall, trial: Row, outcome: Attempt.Outcome, /, **facts: Any) -> Row:
    """Return the row of a call. facts: columns that the call itself does not know."""
    is_failure = outcome not in (Attempt.Outcome.OK, Attempt.Outcome.CACHED)
    times = (call.completed_at, call.claimed_at, trial["completed_at"], trial["claimed_at"], timezone.now())
    return {
        **{name: getattr(call, name) for name in (*CALL_COLUMNS, "list_usd")},
        "trial_id": trial["id"],
        "run_id": trial["run_id"],
        "outcome": Attempt.Outcome.CACHED if call.is_cached and not is_failure else outcome,
        "started_at": call.claimed_at,
        "finished_at": next(filter(None, times)),
        "error_class": "unknown" if is_failure else "",
        "error": _redact_error(call.error),
        **facts,
    }
