"""The rows of a study's answers: trials, attempts and gradings, in batches, and the counters over them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, Sum
from django.utils import timezone

from evalsite.lib.text.hashing import slugify_name
from grading_app.models import GradeCondition, Grading
from grading_app.study_import.study import StudyError, StudyScore, StudyTrial
from grading_app.study_import.study_checks import check_trial
from runs_app.models import Attempt, Condition, Experiment, Run, Trial, Wave

Identity = tuple[int, int, int | None, int]  # Run, item, dimension, repetition.
USAGE = (
    "finish_reason", "response_id", "served_model", "input_tokens", "output_tokens", "reasoning_tokens", "cost_usd",
    "latency_ms", "cache_read_tokens", "cache_write_tokens",
)  # fmt: skip


@dataclass
class ImportReport:
    """The counts of an import. skipped: trials that were there already. notes: what was not taken, and why.

    recovered: trials that failed here and are done in the files. samples: the largest number of repetitions.
    """

    experiment: Experiment
    items: int = 0
    conditions: int = 0
    trials: int = 0
    failed: int = 0
    attempts: int = 0
    gradings: int = 0
    skipped: int = 0
    recovered: int = 0
    samples: int = 1
    notes: list[str] = field(default_factory=list)


@dataclass
class StudyRows:
    """The rows that the trials of a study refer to, by the keys of the study.

    known: key and success of the trials that are there, by their identity. graders: the parameters of scorers.
    """

    items: dict[str, int]
    dimensions: dict[str, int]
    conditions: dict[str, Condition]
    waves: dict[int, Wave]
    known: dict[Identity, tuple[int, bool]]
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    graders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scorers: dict[str, GradeCondition] = field(default_factory=dict)

    def run(self, condition: str, wave: int) -> Run:
        """Return the run of a condition in a wave, and create it if it is new."""
        key = (condition, wave)
        if key not in self.runs:
            row = self.conditions[condition]
            self.runs[key] = Run.objects.get_or_create(
                condition=row,
                wave=self.waves[wave],
                defaults={"experiment_id": row.experiment_id, "status": Run.Status.DONE},
            )[0]
        return self.runs[key]

    def scorer(self, name: str, experiment: Experiment) -> GradeCondition:
        """Return the grade condition of a scorer, and create it if it is new."""
        if name not in self.scorers:
            slug = slugify_name(name)[:40]
            parameters = {"imported": experiment.imported_from, **self.graders.get(name, {})}
            self.scorers[name] = GradeCondition.objects.get_or_create(
                experiment=experiment,
                grade_condition_id=f"imported-{slug}",
                defaults={"scorer": slug, "parameters": parameters},
            )[0]
        return self.scorers[name]


def write_batch(batch: list[StudyTrial], rows: StudyRows, experiment: Experiment, report: ImportReport) -> None:
    """Write the trials that are not there yet, and the scores that the others do not have yet."""
    new: list[tuple[StudyTrial, Trial]] = []
    old: list[tuple[StudyTrial, int]] = []
    seen: set[Identity] = set()
    for one in batch:
        trial = _trial(one, rows)
        identity = _identity(trial)
        if identity in seen:
            report.skipped += 1
        elif identity in rows.known:
            pk, is_done = rows.known[identity]
            old.append((one, pk))
            report.recovered += one.is_done and not is_done
        else:
            seen.add(identity)
            new.append((one, trial))
    Trial.objects.bulk_create([trial for _, trial in new])
    rows.known |= {_identity(trial): (trial.pk, one.is_done) for one, trial in new}
    report.samples = max(report.samples, *(one.sample_idx + 1 for one in batch))
    attempts = [attempt for one, trial in new for attempt in _attempts(one, trial)]
    Attempt.objects.bulk_create(attempts)
    gradings = [_grading(score, trial.pk, rows, experiment) for one, trial in new for score in one.scores]
    gradings += _later_gradings(old, rows, experiment)
    Grading.objects.bulk_create(gradings)
    report.trials += len(new)
    report.skipped += len(old)
    report.failed += sum(not one.is_done for one, _ in new)
    report.attempts += len(attempts)
    report.gradings += len(gradings)


def _identity(trial: Trial) -> Identity:
    return trial.run_id, trial.item_id, trial.dimension_id, trial.sample_idx


def _later_gradings(old: list[tuple[StudyTrial, int]], rows: StudyRows, experiment: Experiment) -> list[Grading]:
    """Return the scores that a tool gave after the trials were imported."""
    scored = [(score, trial) for one, trial in old for score in one.scores]
    if not scored:
        return []
    there = set(Grading.objects.filter(trial__in={trial for _, trial in scored}).values_list("trial", "condition"))
    gradings = {
        (one.trial_id, one.condition_id): one
        for one in (_grading(score, trial, rows, experiment) for score, trial in scored)
    }
    return [one for key, one in gradings.items() if key not in there]


def _trial(one: StudyTrial, rows: StudyRows) -> Trial:
    check_trial(one)
    places: Mapping[str, Mapping[Any, Any]] = {"item": rows.items, "condition": rows.conditions, "wave": rows.waves}
    for what, known in places.items():
        if getattr(one, what) not in known:
            raise StudyError([f"{one.where}: unknown {what} {getattr(one, what)!r}"])
    if one.dimension is not None and one.dimension not in rows.dimensions:
        raise StudyError([f"{one.where}: unknown dimension {one.dimension!r}"])
    unread = one.is_done and one.dimension is not None and one.rating is None
    return Trial(
        run=rows.run(one.condition, one.wave),
        item_id=rows.items[one.item],
        dimension_id=rows.dimensions[one.dimension] if one.dimension is not None else None,
        sample_idx=one.sample_idx,
        status=Trial.Status.DONE if one.is_done else Trial.Status.FAILED,
        attempts=one.attempts,
        rating=one.rating,
        parse_error="no_rating_found" if unread else "",
        answer=one.answer,
        reasoning=one.reasoning,
        raw_response=one.raw_response,
        truncated=one.is_truncated,
        refused=one.is_refused,
        error_class=one.error_class,
        error=one.error,
        claimed_at=one.claimed_at,
        completed_at=one.completed_at,
        **{name: getattr(one, name) for name in USAGE},
    )


def _attempts(one: StudyTrial, trial: Trial) -> Iterator[Attempt]:
    """Yield the calls of a trial. The source has the cost of the last one only; earlier ones are unknown."""
    finished = one.completed_at or one.claimed_at or timezone.now()
    for _ in range(one.attempts - 1):
        yield Attempt(
            trial=trial, run_id=trial.run_id, token=uuid.uuid4(), finished_at=finished, error_class="unknown",
            outcome=Attempt.Outcome.TRANSIENT, error="" if one.is_done else one.error,
        )  # fmt: skip
    yield Attempt(
        trial=trial,
        run_id=trial.run_id,
        token=uuid.uuid4(),
        outcome=Attempt.Outcome.OK if one.is_done else Attempt.Outcome.PERMANENT,
        empty=one.is_done and one.answer == "",
        truncated=one.is_truncated,
        refused=one.is_refused,
        unparsed=bool(trial.parse_error),
        error_class=one.error_class,
        error=one.error,
        started_at=one.claimed_at,
        finished_at=finished,
        **{name: getattr(one, name) for name in USAGE},
    )


def _grading(score: StudyScore, trial: int, rows: StudyRows, experiment: Experiment) -> Grading:
    return Grading(
        trial_id=trial,
        condition=rows.scorer(score.scorer, experiment),
        score=score.value,
        score_raw=score.raw,
        parse_ok=score.value is not None,
        parse_error="" if score.value is not None else (score.error or "no_score")[:40],
        reasoning=score.reasoning,
        detail=None if score.detail is None else dict(score.detail),
    )


# --- counters ---------------------------------------------------------------------------------------------------------


def refresh_counters(run: Run) -> None:
    """Set the counters of an imported run to what its rows say, as `reconcile` computes them."""
    statuses = Counter(dict(run.trials.values_list("status").annotate(n=Count("pk")).order_by()))
    calls = run.attempt_rows.aggregate(
        n_attempts=Count("pk"),
        n_permanent=Count("pk", filter=Q(outcome=Attempt.Outcome.PERMANENT)),
        n_unpriced=Count("pk", filter=Q(cost_usd=None)),
        spent_usd=Sum("cost_usd", default=Decimal(0)),
        input_tokens=Sum("input_tokens", default=0),
        output_tokens=Sum("output_tokens", default=0),
    )
    Run.objects.filter(pk=run.pk).update(n_done=statuses["done"], n_failed=statuses["failed"], **calls)


def refresh_samples(experiment: Experiment, samples: int) -> None:
    """Raise the number of repetitions if the files have more than at the first import."""
    Experiment.objects.filter(pk=experiment.pk, samples__lt=samples).update(samples=samples)


def refresh_spending(experiment: Experiment) -> None:
    """Set what was spent. There is no budget: imported costs were paid elsewhere, and nothing more is called."""
    spent = experiment.runs.aggregate(all=Sum("spent_usd", default=Decimal(0)))["all"]
    Experiment.objects.filter(pk=experiment.pk).update(spent_usd=spent)
