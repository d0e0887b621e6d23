"""The planning of a judge's trials from done answers, one row per verdict. A second plan adds only missing trials.

Locks are taken in the order experiment, run, trials, as in all modules.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from django.db import transaction

from evalsite.lib.history import Actor
from grading_app.grading.judging import grade_conditions, panels
from grading_app.grading.judging.judging_costs import AnswerCounts, AnswerSelection
from grading_app.models import GradeCondition, Grader
from runs_app import run_control
from runs_app.models import Condition, Experiment, Run, Wave
from runs_app.planning.manifests import write_manifest
from runs_app.planning.work import PlanError, add_trials, get_or_create_run
from runs_app.pricing.costs import CostEstimate
from runs_app.taskqueue.enqueue import enqueue_drains

logger = logging.getLogger("evalsite.grading")


@dataclass(frozen=True, slots=True)
class JudgingReport:
    """The requests to one grader in one wave: new verdicts, and answers that got a score without a call.

    `added` includes `revived`, the verdicts that were requested before and cancelled.
    """

    condition: GradeCondition
    run: Run
    added: int
    unasked: int
    counts: AnswerCounts
    revived: int = 0

    def __str__(self) -> str:
        """Return a summary such as `judge-a_standard--0123456789ab: 40 verdicts requested`."""
        if self.run.status == Run.Status.CANCELLED:
            return f"{self.condition}: judging of this wave was cancelled; request it again to continue"
        unasked = f", {self.unasked} scored without a call" if self.unasked else ""
        revived = f" ({self.revived} of them after a cancellation)" if self.revived else ""
        counts = f"{self.added} verdicts requested{revived}{unasked}"
        return f"{self.condition}: {counts}" + (f"; {self.unusual_answers}" if self.unusual_answers else "")

    @property
    def unusual_answers(self) -> str:
        """Counts such as `of 42 answers 2 are empty, 1 is truncated`, or empty if no answer is unusual."""
        counts = self.counts
        by_kind = {
            "empty": counts.empty,
            "too long": counts.too_long,
            "truncated": counts.truncated,
            "refused": counts.refused,
        }
        parts = ", ".join(f"{n} {'is' if n == 1 else 'are'} {kind}" for kind, n in by_kind.items() if n)
        return f"of {counts.answers} answers {parts}" if parts else ""


def request_verdicts(
    experiment: Experiment,
    graders: Sequence[Grader],
    waves: Sequence[Wave],
    *,
    by: Actor,
    force: bool = False,
    approved: CostEstimate | None = None,
    revive: bool = False,
    only: Collection[str] | None = None,
) -> list[JudgingReport]:
    """Request all missing verdicts of these graders on the stored answers of these waves, and start the runs.

    `force` requests another verdict on each answer, which will replace the previous one.
    `revive` also requests cancelled verdicts. `only` holds the ids of the conditions to judge; None means all.
    `approved` is the estimate that the user saw; the manifest records it.
    Raise PlanError, and change nothing, if the request is impossible.
    """
    for grader in graders:
        for wave in waves:  # Counted before the lock and cached: it may take seconds, and claims wait for the lock.
            AnswerSelection(experiment, grader, wave, force, only).find_largest_request()
    with transaction.atomic():
        revived = _reset_failed_verdicts(experiment, graders, waves, by) if revive else {}
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        problems = [problem for grader in graders for problem in grade_conditions.find_problems(locked, grader)]
        if problems:
            raise PlanError(problems)
        report = [
            _plan_verdicts(AnswerSelection(locked, grader, wave, force, only), by, revived)
            for grader in graders
            for wave in waves
        ]
        if any(line.unasked for line in report):
            panels.refresh_all_panels(locked)
        if any(line.added for line in report):
            write_manifest(locked, by=by, wave=", ".join(wave.label for wave in waves), approved=approved)
    enqueue_drains()
    return report


def _reset_failed_verdicts(
    experiment: Experiment, graders: Sequence[Grader], waves: Sequence[Wave], by: Actor
) -> Mapping[int, int]:
    """Reset failed and cancelled verdicts, and return their number by run id.

    This must run first, because it locks endpoints, and endpoints are locked before the experiment.
    """
    conditions = [condition for grader in graders if (condition := grade_conditions.find_condition(experiment, grader))]
    runs = Run.objects.filter(wave__in=waves, condition__grade_condition__in=conditions)
    return run_control.revive(runs, by=by, reason="its verdicts were requested again")


def _plan_verdicts(answers: AnswerSelection, by: Actor, revived: Mapping[int, int]) -> JudgingReport:
    condition = grade_conditions.get_or_create_condition(answers.experiment, answers.grader)
    run = get_or_create_run(
        cast(Condition, condition.judge_condition),
        answers.wave,
        answers.compute_bounds(),
        is_batched=answers.is_batched(),
    )
    n_revived = revived.get(run.pk, 0)
    added = add_trials(run, answers.insert_trials, by=by, reason="{n} verdicts were requested")
    return JudgingReport(
        condition, run, added + n_revived, answers.score_without_call(condition.pk), answers.counts, n_revived
    )


def ask_judges(experiment: Experiment, *, by: str) -> int:
    """Ask the design's graders about the waves whose answers are complete. Return the number of requested verdicts.

    The approval of the launch covers their cost. A grader that cannot judge is logged; the others go on.
    """
    added = 0
    waves = experiment.find_complete_waves()
    for grader in Grader.objects.of_design(experiment):
        try:
            added += sum(report.added for report in request_verdicts(experiment, [grader], waves, by=by))
        except PlanError as problem:
            logger.warning("experiment %s: judge %s did not start: %s", experiment, grader, problem)
    return added
