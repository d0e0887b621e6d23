"""Runs: a run is one condition in one wave. It is launched, paused and finished as a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Self

from django.db import models, transaction
from django.db.models import F, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, TransitionQuerySet, record_changes
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.bounds import BOUNDS
from runs_app.models.bounded import InRange, build_range_constraints
from runs_app.models.conditions import Condition, Wave
from runs_app.models.endpoints import Endpoint
from runs_app.models.engine_owned_columns import EngineOwnedColumns
from runs_app.models.experiments import Experiment
from runs_app.models.totals import UNDER_WAY, RunStatus, Totals
from runs_app.pricing import costs


class Unbounded(ValueError):
    """Calls under a budget without a cost ceiling. Each of `problems` is a sentence that names the missing value."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class RunQuerySet(TransitionQuerySet):
    def visible_to(self, user: Any) -> Self:
        return self.filter(experiment__in=Experiment.objects.visible_to(user))

    def generating(self) -> Self:
        """Return the runs that answer the design's items, without judges and rubric writers."""
        return self.filter(condition__stage=Condition.Stage.GENERATE)

    def answering(self, experiments: Iterable[Experiment | int]) -> Self:
        """Return the runs that answer the items of these experiments, given as rows or keys."""
        return self.generating().filter(experiment__in=experiments)

    def callable_here(self) -> Self:
        """Return the runs whose calls this site may make: not the answers of imported studies, nor other programs'."""
        return self.exclude(
            models.Q(condition__stage=Condition.Stage.EXTERNAL)
            | (models.Q(condition__stage=Condition.Stage.GENERATE) & ~models.Q(experiment__imported_from=""))
        )

    def with_reuse(self) -> Self:
        """Annotate each run with `n_reused`: its answers from the response cache, for which no tokens are counted."""
        return self.annotate(n_reused=Coalesce(models.Sum("ledger__reused"), 0, output_field=models.BigIntegerField()))

    def with_design(self) -> Self:
        """Fetch each run with the rows that its requests and their ceiling depend on."""
        return self.select_related(
            "experiment", "wave", "condition__model__endpoint", "condition__prompt", "condition__sampler"
        )

    def expecting_answers(self) -> Self:
        """Return the runs of answers with trials that have not ended, except cancelled ones."""
        has_open_trials = models.Q(n_pending__gt=0) | models.Q(n_running__gt=0)
        return self.generating().filter(has_open_trials).exclude(status=Run.Status.CANCELLED)

    def unfinished(self) -> Self:
        """Return the runs that may still make calls under their plan. New trials for a done run need a new plan."""
        ended = models.Q(status=Run.Status.CANCELLED) | models.Q(status=Run.Status.DONE, n_failed=0)
        return self.exclude(ended)

    def find_unbounded(self, change: Callable[[Run], object] = lambda run: None) -> list[str]:
        """Return why future calls under a budget would have no ceiling after `change` is applied to each run."""
        runs = list(self.unfinished().with_design().order_by("pk"))
        for run in runs:
            change(run)
        return _find_ceiling_problems(runs)

    def update_reservations(self) -> None:
        """Set the reservations of future calls to their current ceilings. Calls in flight keep theirs.

        Prices and limits may change while runs are active. With outdated reservations, calls could exceed the budget.
        Raise Unbounded, and change nothing, if a call under a budget would have no ceiling. Locks the experiments, then
        the runs. Workers use the new values from their next claim on.
        """
        with transaction.atomic():
            keys = self.order_by().values("experiment")
            list(Experiment.objects.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True).values_list("pk"))
            runs = self.unfinished().with_design().order_by("pk")
            rows = list(runs.select_for_update(of=("self",), no_key=True))
            if problems := _find_ceiling_problems(rows):
                raise Unbounded(problems)
            for run in rows:
                run.reserve_usd = costs.round_reservation(run.ceiling_usd)
            Run.objects.bulk_update(rows, ["reserve_usd"])


def _find_ceiling_problems(runs: list[Run]) -> list[str]:
    return list(dict.fromkeys(problem for run in runs if (problem := run.ceiling_problem)))


@constrain_numbers()
@constrain_choices
class Run(HasHistory, EngineOwnedColumns):
    """One condition in one wave. Its counters equal the rows of its trials at every commit; `reconcile` checks this."""

    Status = RunStatus
    UNDER_WAY = UNDER_WAY

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="runs")
    condition = models.ForeignKey(Condition, on_delete=models.CASCADE, related_name="runs")
    wave = models.ForeignKey(Wave, on_delete=models.CASCADE, related_name="runs")
    status = models.CharField(max_length=10, choices=Status, default=Status.PLANNED, editable=False)
    stop_reason = models.TextField(blank=True, editable=False)
    paused_by_budget = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Paused because the budget covers no further call",
    )
    max_concurrency = models.PositiveIntegerField(default=32, validators=[InRange("run", "max_concurrency")])
    is_batched = models.BooleanField(default=False, editable=False, help_text="Sends its trials in batches")
    reserve_usd = models.DecimalField(
        max_digits=14, decimal_places=8, default=0, help_text="Reserved for each claimed trial"
    )
    reserve_tokens = models.PositiveIntegerField(
        default=0, help_text="Expected tokens of each claimed trial, for the token rate limit"
    )
    request_tokens = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="Upper bound of the tokens in its largest request",
    )
    n_pending = models.IntegerField(default=0, editable=False)
    n_running = models.IntegerField(default=0, editable=False)
    n_done = models.IntegerField(default=0, editable=False)
    n_failed = models.IntegerField(default=0, editable=False)
    n_cancelled = models.IntegerField(default=0, editable=False)
    n_attempts = models.IntegerField(default=0, editable=False)
    n_permanent = models.IntegerField(default=0, editable=False, help_text="Attempts that failed permanently")
    attempts_before = models.IntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="Attempts before its last start, which the limit ignores",
    )
    permanent_before = models.IntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="Permanent failures before its last start, which the limit ignores",
    )
    rejections = models.IntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="Pauses after status 429 since the last reply of another kind",
    )
    errors = models.JSONField(default=dict, editable=False, help_text="Attempts by error class")
    spent_usd = models.DecimalField(max_digits=16, decimal_places=8, default=0, editable=False)
    n_unpriced = models.IntegerField(default=0, editable=False, help_text="Attempts whose cost is unknown")
    input_tokens = models.BigIntegerField(default=0, editable=False)
    output_tokens = models.BigIntegerField(default=0, editable=False)
    started_at = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    n_reused: int  # Set only by `with_reuse`.

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["condition", "wave"], name="run_condition_wave"),
            *build_range_constraints("run"),
        ]
        indexes = [models.Index(fields=["status"], name="run_status", condition=models.Q(status="running"))]

    def __str__(self) -> str:
        return f"run {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("run_detail", args=[self.pk])

    def get_label(self, labels: Mapping[int, str], *, names_wave: bool) -> str:
        """Return its condition's label among `labels`, with the wave where `names_wave`, for several waves."""
        label = labels[self.condition_id]
        return f"{label}, {self.wave}" if names_wave else label

    @property
    def state(self) -> str:
        """Return the state that its pages show: its status, `partial` or `failed`."""
        return Totals.of([self]).state

    @property
    def is_live(self) -> bool:
        """Return whether it makes calls, will make calls on its own, or waits for an answer."""
        return self.status in self.UNDER_WAY or self.n_running > 0

    @property
    def is_callable_here(self) -> bool:
        """Return whether this site may make its calls. Those of an imported study and of other programs it may not."""
        if self.condition.stage == Condition.Stage.EXTERNAL:
            return False
        return not self.experiment.imported_from or self.condition.stage != Condition.Stage.GENERATE

    @property
    def is_paused_by_budget(self) -> bool:
        return self.status == self.Status.PAUSED and self.paused_by_budget

    @property
    def endpoint(self) -> Endpoint:
        """Return the endpoint that serves its model, from the rows of `with_design`."""
        return self.condition.model.endpoint

    @property
    def fits_budget(self) -> bool:
        """Return whether the experiment's remaining budget covers the reservation of one more call."""
        experiment = self.experiment
        if experiment.max_usd is None:
            return True
        return self.reserve_usd <= experiment.max_usd - experiment.spent_usd - experiment.reserved_usd

    @property
    def ceiling_usd(self) -> Decimal | None:
        """Return the largest cost of one call at current prices and limits; None if unknown."""
        model = self.condition.model
        prices = model.prices.in_batch(model.batch_discount if self.is_batched else Decimal(0))
        limit = self.condition.sampler.compute_output_ceiling(model.max_output_tokens)
        return prices.compute_ceiling(self.request_tokens, limit)

    @property
    def ceiling_problem(self) -> str:
        """Return why its calls have no ceiling although the experiment has a budget; empty if there is no problem."""
        model, sampler, experiment = self.condition.model, self.condition.sampler, self.experiment
        if experiment.max_usd is None or self.ceiling_usd is not None:
            return ""
        if not model.prices.is_known:
            return f"unknown price: model {model} has no price, and experiment {experiment} has a budget"
        return (
            f"no ceiling: sampler {sampler} sets no max_tokens, model {model} has no max_output_tokens, "
            f"and experiment {experiment} has a budget"
        )

    @property
    def current_stop_reason(self) -> str:
        """Return why it stopped, if that reason still applies."""
        if self.is_paused_by_budget and self.fits_budget:
            return "Paused because the budget was used up. The budget now allows more calls. Resume the run."
        return self.stop_reason

    def change_concurrency(self, n: int, *, by: Actor) -> None:
        """Set how many of its calls may be in flight, from the next claim on. Raise ValueError if out of bounds."""
        BOUNDS["run"]["max_concurrency"].check(n)
        with transaction.atomic():
            row = Run.objects.select_for_update().get(pk=self.pk)
            record_changes([(row, str(row.max_concurrency), str(n))], by=by, reason="", aspect="max_concurrency")
            Run.objects.filter(pk=self.pk).update(max_concurrency=n)
        self.max_concurrency = n

    @property
    def n_trials(self) -> int:
        return self.n_pending + self.n_running + self.n_done + self.n_failed + self.n_cancelled

    def describe_deletion(self) -> str:
        """Return the confirmation text: what the deletion of this run removes, and what it keeps."""
        trials = "1 trial" if self.n_trials == 1 else f"{format_count(self.n_trials)} trials"
        attempts = "1 attempt" if self.n_attempts == 1 else f"{format_count(self.n_attempts)} attempts"
        return (
            f"This permanently deletes its {trials} with {attempts}, answers and grades. Its cost of "
            f"{format_money(self.spent_usd)} stays spent in the budget. The next launch of this wave plans it again."
        )

    def describe_cancelled(self, remedy: str) -> str:
        return f"{self} of {self.condition} was cancelled, which is final: it gets no new trials; {remedy}"

    def describe_shortage(self) -> str:
        """Return a text with the remaining budget and the most that all pending calls of the experiment may cost."""
        experiment = self.experiment
        remaining = (experiment.max_usd or Decimal(0)) - experiment.spent_usd - experiment.reserved_usd
        reserved = (
            f", ${experiment.reserved_usd:.4f} reserved for calls of unknown cost" if experiment.reserved_usd else ""
        )
        largest_cost = Sum(F("n_pending") * F("reserve_usd"))
        pending = Run.objects.filter(experiment=experiment).aggregate(trials=Sum("n_pending"), usd=largest_cost)
        return (
            f"The budget of ${experiment.max_usd} is reached: ${experiment.spent_usd:.4f} is spent{reserved} and"
            f" ${remaining:.4f} is left. Pending trials of this run: {self.n_pending},"
            f" at most ${self.reserve_usd * self.n_pending:.4f}."
            f" Pending calls of the experiment, with judges: {pending['trials']}, at most ${pending['usd']:.4f},"
            f" which is ${pending['usd'] - remaining:.4f} more than is left."
        )


@constrain_numbers()
class Tick(models.Model):
    """Ten seconds of one run: how many trials ended in them. The rate and its chart are computed from ticks."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="ticks")
    at = models.DateTimeField(help_text="Start of the ten seconds")
    done = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    attempts = models.IntegerField(default=0)

    class Meta:
        ordering = ["at"]
        constraints = [models.UniqueConstraint(fields=["run", "at"], name="tick_run_at")]

    def __str__(self) -> str:
        return f"{self.run_id} at {self.at:%H:%M:%S}"
