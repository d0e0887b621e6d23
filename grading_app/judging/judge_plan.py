"""From done answers to the trials of a judge, one verdict a row. Planning again adds what is missing and nothing else.

Locks are taken in the order experiment, run, trials, as everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from datasets_app.models.history import Actor
from grading_app.judging import grade_conditions, judging_costs, panels
from grading_app.judging.answer_selection import Answers, Seen
from grading_app.models import GradeCondition, Grader
from runs_app import run_control
from runs_app.engine.run_lifecycle import start_runs
from runs_app.models import Experiment, Run, Wave
from runs_app.planning.cost_estimate import Estimate
from runs_app.planning.manifests import write_manifest
from runs_app.planning.plan import PlanError
from runs_app.taskqueue.enqueue import wake


@dataclass(frozen=True, slots=True)
class JudgingReport:
    """What was asked of one grader in one wave: new verdicts, and answers that got a score without a call. Of the new
    ones, `revived` were asked for before, and cancelled."""

    condition: GradeCondition
    run: Run
    added: int
    unasked: int
    seen: Seen
    revived: int = 0

    def __str__(self) -> str:
        """`judge-a_standard--0123456789ab: 40 verdicts asked for; of 42 answers 2 are empty`"""
        if self.run.status == Run.Status.CANCELLED:
            return f"{self.condition}: its judging of this wave was cancelled; it goes on when somebody asks for it"
        unasked = f", {self.unasked} scored without a call" if self.unasked else ""
        revived = f" ({self.revived} of them had been cancelled)" if self.revived else ""
        counts = f"{self.added} verdicts asked for{revived}{unasked}"
        return f"{self.condition}: {counts}" + (f"; {self.odd}" if self.odd else "")

    @property
    def odd(self) -> str:
        """`of 42 answers 2 are empty, 1 is truncated`; nothing where all are as usual."""
        seen = self.seen
        odd = [("empty", seen.empty), ("too long", seen.too_long), ("truncated", seen.truncated)]
        odd += [("refused", seen.refused)]
        counts = ", ".join(f"{n} {'is' if n == 1 else 'are'} {what}" for what, n in odd if n)
        return f"of {seen.answers} answers {counts}" if counts else ""


def judge(
    experiment: Experiment,
    graders: Sequence[Grader],
    waves: Sequence[Wave],
    *,
    by: Actor,
    force: bool = False,
    approved: Estimate | None = None,
    revive: bool = False,
    only: Collection[str] | None = None,
) -> list[JudgingReport]:
    """Ask these graders for all verdicts on the stored answers of these waves that are missing, and start at once.

    With `force`, for another verdict on each, which will replace the one before; with `revive`, for those too that were
    cancelled. `approved` is the estimate that was seen, for the manifest. PlanError where it cannot be, and then
    nothing was changed. `only` are the ids of conditions whose answers are judged; None is all.
    """
    for grader in graders:
        for wave in waves:  # Counted ahead, and remembered: it may take seconds, and claims wait for the lock below.
            judging_costs.largest_request(Answers(experiment, grader, wave, force, only))
    with transaction.atomic():
        revived = _revived(experiment, graders, waves, by) if revive else {}
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        problems = [one for grader in graders for one in grade_conditions.problems_with(locked, grader)]
        if problems:
            raise PlanError(problems)
        report = [
            _plan(Answers(locked, grader, wave, force, only), by, revived) for grader in graders for wave in waves
        ]
        if any(one.unasked for one in report):
            panels.refresh_all(locked)
        if any(one.added for one in report):
            write_manifest(locked, by=by, wave=", ".join(wave.label for wave in waves), approved=approved)
    wake()
    return report


def _revived(experiment: Experiment, graders: Sequence[Grader], waves: Sequence[Wave], by: Actor) -> Mapping[int, int]:
    """How many verdicts wait again, by run. First of all: it locks endpoints, which come before the experiment."""
    known = [condition for grader in graders if (condition := grade_conditions.known(experiment, grader))]
    runs = Run.objects.filter(wave__in=waves, condition__grade_condition__in=known)
    return run_control.revive(runs, by=by, reason="its verdicts were asked for again")


def _plan(answers: Answers, by: Actor, revived: Mapping[int, int]) -> JudgingReport:
    condition = grade_conditions.made(answers.experiment, answers.grader)
    run = _run(answers, condition)
    before = revived.get(run.pk, 0)
    added = 0 if run.status == Run.Status.CANCELLED else answers.add_trials(run)
    if added:
        Run.objects.filter(pk=run.pk).update(n_pending=F("n_pending") + added)
        start_runs(
            Run.objects.filter(pk=run.pk),
            sources=[Run.Status.PLANNED, Run.Status.DONE],
            by=by,
            reason=f"{added} verdicts were asked for",
        )
    return JudgingReport(condition, run, added + before, answers.score_unasked(condition.pk), answers.seen, before)


def _run(answers: Answers, condition: GradeCondition) -> Run:
    """The judge's run in this wave, made if it is new; its reserve is that of the longest answer there is by now."""
    experiment = answers.experiment
    asked = judging_costs.reserves_for(answers) | {"is_batched": judging_costs.is_batched(answers)}
    run: Run
    run, is_new = Run.objects.select_for_update(of=("self",)).get_or_create(
        condition=condition.judge_condition,
        wave=answers.wave,
        defaults={"experiment": experiment, "max_concurrency": experiment.max_concurrency, **asked},
    )
    if not is_new:
        Run.objects.filter(pk=run.pk).update(**asked)
    return run
