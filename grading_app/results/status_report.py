"""The status report of an experiment: the outcomes of its trials and judges by condition and wave, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q

from evalsite.lib.text.hashing import hash_content
from grading_app.grading.judging.verdict_reader import count_unread_verdicts
from grading_app.models import GradeCondition, Grading
from grading_app.results.cached_aggregates import Aggregate, find_fresh, get_aggregate, has_many_answers
from grading_app.results.frames import estimate_conditions
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.stored_results import RESULTS, get_results
from runs_app.models import Condition, Experiment, Run, Trial
from runs_app.models import trials as trials_module
from runs_app.models.totals import STATUSES, Totals
from runs_app.monitoring.blockers import find_blockers
from runs_app.monitoring.point_status import report_points
from runs_app.monitoring.progress import WaveTotals, project_cost, sum_by_wave
from runs_app.planning.manifests import find_drift_warnings, find_served_warnings

DONE = Q(status=Trial.Status.DONE)
ANSWER_KINDS = {name: DONE & kind for name, kind in trials_module.UNUSABLE_KINDS.items()} | {
    "refused": trials_module.REFUSED,
    "from_cache": DONE & Q(from_cache=True),
}
WITHOUT_SCORES = "the plan is preregistered: scores are left out until its runs have ended"
OLDER_SCORES = "a worker adds up the newest answers: scores are missing, or older than the counters"
OUTCOMES = ("done", "failed", "attempts", "unpriced", "errors", "spent_usd", *ANSWER_KINDS)
"""Values of a run that are hidden until its preregistered plan has run."""
COUNTERS = ("n_pending", "n_running", "n_done", "n_failed", "n_cancelled", "n_attempts", "n_unpriced")


def build_status_report(experiment: Experiment, *, reads_stored: bool = False) -> dict[str, Any]:
    """Return the report as plain values for JSON. Totals come from counters; kinds of answers are counted by row.

    Until a preregistered plan has run, the report has no scores, and no outcomes of a single run. reads_stored: read
    the scores of a large experiment from its stored results, which a worker computes; they may be older than the
    counters.
    """
    runs = list(experiment.answer_runs.with_design().order_by("wave__number", "pk"))
    counts = count_rows(experiment)
    all_runs = list(experiment.runs.with_design().order_by("pk"))  # With those of judges.
    waves = [str(wave) for wave in experiment.waves.answered()]
    pooled = f"the scores pool {len(waves)} waves ({', '.join(waves)}); the page Waves tests whether they differ"
    runs_a_plan = experiment.runs_a_plan
    scores, notes = [], [WITHOUT_SCORES] if runs_a_plan else []
    if not runs_a_plan and reads_stored and has_many_answers(experiment, None):
        stored = get_results(BoardQuery(experiment))
        scores = estimate_conditions(experiment, stored.value.scores) if stored.value else []
        notes = [] if stored.is_fresh and stored.value else [OLDER_SCORES]
    elif not runs_a_plan:
        fresh = find_fresh(RESULTS, experiment.pk, BoardQuery(experiment)) if reads_stored else None
        scores = estimate_conditions(experiment, fresh.scores if fresh else None)
    projection = project_cost(runs, experiment.max_usd)
    return {
        "experiment": experiment.slug,
        "status": experiment.status,
        "state": experiment.find_state(Totals.of(runs)),
        "dataset": str(experiment.dataset),
        "dataset_hash": experiment.dataset.content_hash,
        "max_usd": _format_optional(experiment.max_usd),
        "spent_usd": _format_optional(Totals.of(runs).find_known_cost(experiment.spent_usd)),
        "projection": (
            None
            if projection is None
            else {
                "total_usd": str(projection.total_usd),
                "remaining": projection.remaining,
                "usd_each": str(projection.usd_each),
                "is_over_budget": projection.is_over_budget,
            }
        ),
        "reserved_usd": _format_optional(experiment.reserved_usd),
        "trials": sum(run.n_trials for run in runs),
        "done": sum(run.n_done for run in runs),
        "failed": sum(run.n_failed for run in runs),
        "waves": [_report_wave(wave) for wave in sum_by_wave(runs)],
        "runs": [_report_run(run, counts.kinds.get(run.pk, {}), hides_outcomes=runs_a_plan) for run in runs],
        "points": [] if runs_a_plan else report_points(experiment),
        "rules": report_rules(experiment, counts.grades),
        "scores": scores,
        "judging": report_judges(experiment),
        "blockers": [blocker.facts | {"sentence": blocker.sentence} for blocker in find_blockers(all_runs)],
        "warnings": [
            *find_drift_warnings(experiment),
            *counts.served_warnings,
            *([pooled] if len(waves) > 1 else []),
            *notes,
        ],
    }


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts over the rows of an experiment, for its status.

    kinds: the answers of each kind by run. grades: the gradings of each rule by error code, "" for scored ones.
    served_warnings: about models that were served as several models or by several providers.
    """

    kinds: dict[int, dict[str, int]]
    grades: dict[int, dict[str, int]]
    served_warnings: list[str]


def _count_rows(experiment: Experiment) -> RowCounts:
    ended = Trial.objects.filter(run__in=experiment.answer_runs, status__in=[Trial.Status.DONE, Trial.Status.FAILED])
    counts: Any = {name: Count("pk", filter=condition) for name, condition in ANSWER_KINDS.items()}
    rows: Any = ended.order_by().values_list("run_id").annotate(**counts)
    kinds = {run: dict(zip(ANSWER_KINDS, numbers, strict=True)) for run, *numbers in rows}
    rules = experiment.grade_conditions.filter(kind=GradeCondition.Kind.RULE)
    grades: dict[int, dict[str, int]] = {}
    codes: Any = (
        Grading.objects.filter(condition__in=rules.values("pk")).order_by().values_list("condition", "parse_error")
    )
    for rule, code, n in codes.annotate(n=Count("pk")):
        grades.setdefault(rule, {})[code] = n
    return RowCounts(kinds, grades, find_served_warnings(experiment))


def _fingerprint_rows(experiment: Experiment) -> str:
    """Return a text that changes with each call, each grading, and the routes of an endpoint."""
    columns = ("pk", "n_done", "n_failed", "n_attempts", "condition__model__endpoint__provider_routes")
    runs = experiment.runs.order_by("pk").values_list(*columns)
    rules = experiment.grade_conditions.order_by("pk").values_list("pk", "changes")
    return hash_content([list(runs), list(rules)])


ROW_COUNTS = Aggregate(
    name="row_counts",
    value_type=lambda: RowCounts,
    dump=lambda _: [],
    load=lambda experiment, _: experiment,
    fingerprint=_fingerprint_rows,
    is_large=lambda _: False,
    compute=lambda experiments, _: [_count_rows(experiment) for experiment in experiments],
    max_rows=1,
)


def count_rows(experiment: Experiment) -> RowCounts:
    """Return the counts over the rows of an experiment, as a worker stored them, or counted now. Nothing is written."""
    return get_aggregate(ROW_COUNTS, experiment.pk, experiment).value or _count_rows(experiment)


def _report_wave(wave_totals: WaveTotals) -> dict[str, Any]:
    wave, totals = wave_totals.wave, wave_totals.totals
    return {
        "number": wave.number,
        "label": wave.label,
        "name": str(wave),
        "first_epoch": wave.epoch_offset + 1,
        "status": totals.status,
        "state": totals.state,
        "trials": totals.trials,
        **{name: getattr(totals, name) for name in STATUSES},
        "spent_usd": _format_optional(totals.find_known_cost(wave_totals.spent_usd)),
    }


def _report_run(run: Run, kinds: dict[str, int], *, hides_outcomes: bool) -> dict[str, Any]:
    """Return the line of a run. hides_outcomes: what came of its calls is None, because its plan has not run."""
    line = {
        "run": run.pk,
        "condition_id": run.condition.condition_id,
        "model": run.condition.model.name,
        "prompt": str(run.condition.prompt),
        "sampler": str(run.condition.sampler),
        "wave": run.wave.number,
        "wave_label": run.wave.label,
        "status": run.status,
        "state": run.state,
        "stop_reason": run.current_stop_reason,
        "trials": run.n_trials,
        **{name.removeprefix("n_"): getattr(run, name) for name in COUNTERS},
        **{name: kinds.get(name, 0) for name in ANSWER_KINDS},
        "ended": run.n_done + run.n_failed,
        "errors": run.errors,
        "spent_usd": _format_optional(Totals.of([run]).find_known_cost(run.spent_usd)),
    }
    return line | dict.fromkeys(OUTCOMES) if hides_outcomes else line


def report_judges(experiment: Experiment) -> list[dict[str, Any]]:
    """Return one line for each judge and wave: verdicts by status, cost, and error codes of unreadable verdicts."""
    judges = experiment.runs.filter(condition__stage=Condition.Stage.JUDGE).with_design()
    runs = list(judges.order_by("wave__number", "pk"))
    unread = count_unread_verdicts(experiment) if runs else {}
    return [
        {
            "run": run.pk,
            "condition_id": run.condition.condition_id,
            "model": run.condition.model.name,
            "wave": run.wave.number,
            "wave_label": run.wave.label,
            "status": run.status,
            "state": run.state,
            "stop_reason": run.current_stop_reason,
            "verdicts": run.n_trials,
            **{name.removeprefix("n_"): getattr(run, name) for name in COUNTERS},
            "unread": unread.get((run.condition_id, run.wave_id), {}),
            "errors": run.errors,
            "spent_usd": str(run.spent_usd),
        }
        for run in runs
    ]


def format_judge(line: dict[str, Any]) -> str:
    """Return the line of a judge for a terminal.

    Example: `judge-a_standard--0123456789ab: running, 40 of 90 verdicts, 2 unread (2 no_json_object)`.
    """
    wave = f" [{line['wave_label'] or line['wave']}]" if line["wave"] else ""
    codes = ", ".join(f"{n} {code}" for code, n in line["unread"].items())
    unread = f", {sum(line['unread'].values())} unread ({codes})" if codes else ""
    failed = f", {line['failed']} failed" if line["failed"] else ""
    counts = f"{line['done']} of {line['verdicts']} verdicts{failed}{unread}"
    return f"{line['condition_id']}{wave}: {line['state']}, {counts} {line['stop_reason']}".rstrip()


def _format_optional(value: Any) -> str | None:
    return None if value is None else str(value)


def report_rules(experiment: Experiment, grades: Mapping[int, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return the number of scored answers and of unreadable answers by error code, for each rule of this experiment."""
    rules = experiment.grade_conditions.filter(kind=GradeCondition.Kind.RULE).order_by("pk")
    counts = {rule: Counter(grades.get(rule.pk, {})) for rule in rules}
    return [
        {
            "grade_condition_id": rule.grade_condition_id,
            "scorer": rule.scorer,
            "parameters": rule.parameters,
            "scored": codes.pop("", 0),
            "unread": dict(codes.most_common()),
        }
        for rule, codes in counts.items()
    ]
