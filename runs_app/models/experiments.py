"""Experiments: a design under a budget, its owner and its audience."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.postgres.aggregates import ArrayAgg
from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, JSONObject
from django.urls import reverse

from datasets_app.models import Dataset
from datasets_app.models.datasets import slug_validator
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.favourites import StarredQuerySet
from evalsite.lib.history import (
    Actor,
    HasHistory,
    TransitionError,
    TransitionQuerySet,
    format_for_history,
    record_changes,
)
from evalsite.lib.permissions import MEMBERS, VIEWER, is_member, is_operator, is_viewer
from evalsite.lib.text.names import NamedChoice, find_named
from runs_app.experiment_options import BUDGET, OPTIONS
from runs_app.models.bounded import build_adaptive_constraint, build_range_constraints, describe_column
from runs_app.models.designs import Dimension, Prompt, Sampler
from runs_app.models.endpoints import LanguageModel
from runs_app.models.engine_owned_columns import EngineOwnedColumns
from runs_app.models.totals import STATUSES, Totals
from runs_app.scorers.scoring_rules import ScoringRule, read_rules

PERMIT = "SELECT set_config('evalsite.deleting_experiment', %s, true)"


class ExperimentQuerySet(StarredQuerySet, TransitionQuerySet):
    def with_wave_count(self) -> Self:
        """Add `wave_count`, the number of waves."""
        waves: Any = self.model._meta.get_field("waves").related_model
        of_experiment = waves.objects.filter(experiment=models.OuterRef("pk")).order_by().values("experiment")
        return self.annotate(wave_count=Coalesce(of_experiment.values(n=models.Count("pk")), 0))

    def with_totals(self) -> Self:
        """Add `n_conditions`, and the totals for `read_totals` and `state`, in the same query."""
        relations: Any = self.model._meta.get_field
        runs = relations("runs").related_model.objects.generating()
        counts = {name: models.Sum(f"n_{name}") for name in (*STATUSES, "unpriced")}
        totals = JSONObject(**counts, states=ArrayAgg("status", distinct=True))
        of_experiment = runs.filter(experiment=models.OuterRef("pk")).order_by().values("experiment")
        conditions = relations("conditions").related_model.objects.filter(stage="generate")
        of_design = conditions.filter(experiment=models.OuterRef("pk")).order_by().values("experiment")
        return self.annotate(
            totals=models.Subquery(
                of_experiment.annotate(totals=totals).values("totals"), output_field=models.JSONField()
            ),
            n_conditions=Coalesce(
                models.Subquery(of_design.annotate(n=models.Count("pk")).values("n"), models.IntegerField()), 0
            ),
        )

    def visible_to(self, user: Any) -> Self:
        """Return the experiments that the user owns or that are shared with the user. An operator sees all."""
        if is_operator(user):
            return self
        if not (is_member(user) or is_viewer(user)):
            return self.none()
        mine = models.Q(owner=user) | models.Q(sharing="group") | models.Q(pk__in=user.shared_experiments.values("pk"))
        return self.filter(mine)

    def editable_by(self, user: Any) -> Self:
        if is_operator(user):
            return self
        return self.filter(owner=user) if is_member(user) else self.none()


@constrain_numbers()
@constrain_choices
class Experiment(HasHistory, EngineOwnedColumns):
    """A dataset crossed with models, prompts, samplers, dimensions and repetitions, under a budget."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        ACTIVE = "active", "Active"
        ARCHIVED = "archived", "Archived"
        STORED = "stored", "Stored in a file"

    ENDED = (Status.ARCHIVED, Status.STORED)  # It cannot be launched or graded any more.

    class Sharing(models.TextChoices):
        PRIVATE = "private", "Owner only"
        GROUP = "group", "Everyone in the group and viewers"

    PEOPLE = "people"  # An audience, not a value of `sharing`: a private experiment that is shared with chosen people.
    AUDIENCES = (Sharing.choices[0], (PEOPLE, "Chosen people"), Sharing.choices[1])

    slug = models.CharField("name", max_length=80, unique=True, validators=[slug_validator])
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="experiments")
    sharing = models.CharField(max_length=10, choices=Sharing, default=Sharing.PRIVATE)
    shared_with = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="shared_experiments")
    starred_by = models.ManyToManyField(
        settings.AUTH_USER_MODEL, editable=False, related_name="starred_experiments", help_text="Favourite of"
    )
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT, editable=False)

    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="experiments")
    language_models = models.ManyToManyField(LanguageModel, related_name="experiments")
    prompts = models.ManyToManyField(Prompt, related_name="experiments")
    samplers = models.ManyToManyField(Sampler, related_name="experiments")
    dimensions = models.ManyToManyField(Dimension, related_name="experiments", blank=True)
    samples = models.PositiveIntegerField(**describe_column("samples"))
    primary_measure = models.CharField(null=True, **describe_column("primary_measure"))
    scorers = models.JSONField(default=list, blank=True, help_text="Scorers that grade the stored answers")
    graders = models.JSONField(
        default=list, blank=True, help_text="Names of graders: judge models that grade the recorded answers"
    )
    adaptive = models.JSONField(
        default=dict, blank=True, help_text="Rule that ends a point of the design early. Empty: ask every case"
    )
    draws = models.JSONField(
        default=dict, blank=True, editable=False, help_text="Draws that selected its models and judges"
    )

    cache = models.BooleanField(**describe_column("cache"))
    cache_buster = models.BooleanField(**describe_column("cache_buster"))
    batch = models.BooleanField(**describe_column("batch"))
    sequential = models.BooleanField(**describe_column("sequential"))
    shuffle = models.IntegerField(null=True, **describe_column("shuffle"))
    max_concurrency = models.PositiveIntegerField(**describe_column("max_concurrency"))
    priority = models.SmallIntegerField(**describe_column("priority"))
    request_timeout_s = models.FloatField(**describe_column("request_timeout_s"))
    on_empty = models.CharField(max_length=10, **describe_column("on_empty"))
    on_unreadable = models.CharField(max_length=10, **describe_column("on_unreadable"))
    max_attempts = models.PositiveSmallIntegerField(**describe_column("max_attempts"))
    backoff_s = models.FloatField(**describe_column("backoff_s"))
    max_backoff_s = models.FloatField(**describe_column("max_backoff_s"))
    lease_s = models.FloatField(**describe_column("lease_s"))
    stop_failure_rate = models.FloatField(**describe_column("stop_failure_rate"))
    stop_after_attempts = models.PositiveIntegerField(**describe_column("stop_after_attempts"))

    budget_policy = models.CharField(max_length=10, **describe_column("budget_policy"))
    dev_items = models.PositiveIntegerField(**describe_column("dev_items"))
    dev_samples = models.PositiveIntegerField(null=True, **describe_column("dev_samples"))
    max_usd = models.DecimalField(max_digits=12, decimal_places=4, null=True, **describe_column("max_usd"))
    confirm_above_usd = models.DecimalField(
        max_digits=12, decimal_places=4, null=True, **describe_column("confirm_above_usd")
    )
    imported_from = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Tool that produced the imported results. Empty for experiments of this site",
    )
    spent_usd = models.DecimalField(max_digits=16, decimal_places=8, default=0, editable=False)
    reserved_usd = models.DecimalField(max_digits=16, decimal_places=8, default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            *build_range_constraints("experiment"),
            build_adaptive_constraint("experiment", "adaptive"),
        ]

    def __str__(self) -> str:
        return self.slug

    def get_absolute_url(self) -> str:
        return reverse("experiment_detail", args=[self.slug])

    def get_star_url(self) -> str:
        return reverse("experiment_star", args=[self.slug])

    def clean(self) -> None:
        if self.backoff_s is not None and self.max_backoff_s is not None and self.max_backoff_s < self.backoff_s:
            raise ValidationError({"max_backoff_s": "The longest wait must not be shorter than the first one."})

    def describe_options(self, *, reported: bool = False, at_default: bool | None = None) -> list[tuple[str, str]]:
        """Return heading and value of each option that the facts on pages show, or that reports show.

        A report states the budget with its costs, which a shared report may leave out. at_default: only options that
        have their default value (True), or another value (False).
        """
        shown = [
            option
            for option in OPTIONS
            if (option.is_reported and option.group != BUDGET if reported else option.is_fact)
        ]
        values = [(option, getattr(self, option.name)) for option in shown]
        return [
            (option.heading, option.describe(value))
            for option, value in values
            if at_default is None or (value == option.default) == at_default
        ]

    def unique_error_message(self, model_class: type[models.Model], unique_check: Sequence[str]) -> ValidationError:
        """Return the same message for every owner, because the name may belong to a private experiment."""
        return ValidationError("This name is not available. Choose another name.", code="unique")

    @property
    def plans_every_case(self) -> bool:
        """Return whether it asks all items of its dataset. A study of another tool has the cases that were asked."""
        return not self.adaptive and self.imported_from in ("", "snapshot")

    @property
    def audience(self) -> str:
        """Return one of AUDIENCES."""
        if self.sharing != self.Sharing.PRIVATE:
            return self.sharing
        return self.PEOPLE if self.shared_with.exists() else str(self.Sharing.PRIVATE)

    @property
    def audience_text(self) -> str:
        """Return the audience as text: the names of the chosen people, or the label of `sharing`."""
        if self.sharing != self.Sharing.PRIVATE:
            return self.get_sharing_display()
        names = self.shared_with.order_by("username").values_list("username", flat=True)
        return ", ".join(names) or self.get_sharing_display()

    def share(self, audience: str, people: Iterable[Any] = (), *, by: Actor, reason: str = "") -> bool:
        """Share it with one of AUDIENCES. Return whether that changed anything. `people` applies only to PEOPLE."""
        chosen = list(people) if audience == self.PEOPLE else []
        sharing = self.Sharing.GROUP if audience == self.Sharing.GROUP else self.Sharing.PRIVATE
        with transaction.atomic():
            row = type(self).objects.select_for_update(no_key=True).get(pk=self.pk)
            before = row.audience_text
            type(self).objects.filter(pk=row.pk).update(sharing=sharing)
            row.sharing = self.sharing = sharing
            row.shared_with.set(chosen)
            after = row.audience_text
            if after == before:
                return False
            record_changes(
                [(row, format_for_history(before), format_for_history(after))], by=by, reason=reason, aspect="sharing"
            )
        return True

    def change_priority(self, priority: int, *, by: Actor, reason: str = "") -> bool:
        """Set its priority among experiments that share an endpoint. Return whether that changed anything.

        The priority applies from the next claim on. Raise ValidationError if the number is outside the bounds.
        """
        type(self).priority.field.clean(priority, self)
        with transaction.atomic():
            row = type(self).objects.select_for_update(no_key=True).get(pk=self.pk)
            if row.priority == priority:
                return False
            record_changes([(row, str(row.priority), str(priority))], by=by, reason=reason, aspect="priority")
            type(self).objects.filter(pk=self.pk).update(priority=priority)
        self.priority = priority
        return True

    @property
    def runs_a_plan(self) -> bool:
        """True while it has a preregistered plan that has not run. Names of models are then hidden beside results."""
        runs = self.runs.expecting_answers().filter(experiment__preregistration__isnull=False)
        return bool(runs.exists())

    @property
    def answer_runs(self) -> Any:
        """The runs that answer the design's items, without judges and rubric writers."""
        return self.runs.generating()

    @property
    def answer_conditions(self) -> Any:
        """The conditions of the design itself, without judges and rubric writers."""
        return self.conditions.filter(stage="generate")

    def get_first_wave(self) -> Any:
        """Return the wave with number 0, created if missing. It holds work that no repetition of the design owns."""
        return self.waves.get_or_create(number=0)[0]

    def find_wave(self, name: str) -> Any:
        """Return the wave with this number or label. Raise UnknownNameError, which lists the waves, if there is none.

        A number comes before a label, because addresses name waves by number.
        """
        waves = list(self.waves.all())
        choices = [NamedChoice(wave, str(wave.number), (str(wave), f"wave {wave.number}")) for wave in waves]
        return find_named(name, choices, "wave")

    def has_several_waves(self) -> bool:
        """Return whether there are two waves or more, from `with_wave_count` if the row has it."""
        count: int | None = getattr(self, "wave_count", None)
        return (self.waves.count() if count is None else count) > 1

    def find_complete_waves(self) -> list[Any]:
        """Return the waves whose runs of answers have all ended, with at least one run done."""
        live = self.answer_runs.exclude(status__in=("done", "cancelled"))
        waves = self.waves.exclude(pk__in=live.values("wave"))
        return list(waves.filter(runs__status="done").distinct())

    def find_dimension(self, name: str) -> Dimension:
        """Return the dimension with this key, name or title. Raise UnknownNameError if there is none, or several."""
        dimensions = list(self.dimensions.order_by("pk"))
        choices = [NamedChoice(row, str(row), (row.title or row.name, row.name, str(row.pk))) for row in dimensions]
        dimension: Dimension = find_named(name, choices, "dimension")
        return dimension

    def list_solvers(self) -> list[LanguageModel]:
        return list(self.language_models.select_related("endpoint").order_by("name"))

    def list_rules(self) -> list[ScoringRule]:
        """Return the rules of the design. The default is the `rating` rule if the design has dimensions."""
        if self.scorers:
            return read_rules(self.scorers)
        return [ScoringRule("rating")] if self.dimensions.exists() else []

    def list_rubric_tests(self) -> list[Any]:
        """Return the runs of judges that only tested a rubric, the newest first. Their verdicts are not gradings."""
        runs: Any = self.runs.filter(condition__stage="judge", condition__grade_condition=None)
        return list(runs.with_design().order_by("-pk")[:20])

    def may_exceed_budget(self, ceiling_usd: Decimal | None) -> bool:
        """Return whether calls up to this ceiling exceed the remaining budget.

        Runs may then stop early, but never exceed the budget.
        """
        if self.max_usd is None or ceiling_usd is None:
            return False
        return self.spent_usd + ceiling_usd > self.max_usd

    def needs_confirmation(self, ceiling_usd: Decimal | None) -> bool:
        """Return whether this ceiling needs a confirmation: it is unknown, or above the amount in the design."""
        if self.confirm_above_usd is None:
            return False
        return ceiling_usd is None or ceiling_usd > self.confirm_above_usd

    def read_totals(self) -> Totals:
        """Return the totals of the runs that answer its items, from `with_totals` if the row has them."""
        if not hasattr(self, "totals"):
            return Totals.of(self.answer_runs)
        totals = dict(self.totals or {})
        return Totals(states=frozenset(totals.pop("states", ())), **totals)

    @property
    def is_archived(self) -> bool:
        """Return whether it was archived, with its rows in the database or in a file."""
        return self.status in self.ENDED

    @property
    def is_stored(self) -> bool:
        """Return whether its answers and grades are in a file, not in the database."""
        return self.status == self.Status.STORED

    @property
    def state(self) -> str:
        """The state that its pages show."""
        return self.find_state(self.read_totals())

    def find_state(self, totals: Totals) -> str:
        """Return the state of an experiment: its status for a draft or an archived one, else the state of its runs."""
        return totals.state if self.status == Experiment.Status.ACTIVE and totals.state else self.status

    def archive(self, *, by: Actor, reason: str = "") -> None:
        """Archive the experiment and keep all its rows.

        Raise TransitionError while a run is live, or if the experiment is already archived.
        """
        with transaction.atomic():
            self.refuse_while_live()
            Experiment.objects.transition_one(
                self,
                sources=[Experiment.Status.DRAFT, Experiment.Status.ACTIVE],
                target=Experiment.Status.ARCHIVED,
                by=by,
                reason=reason,
            )

    def refuse_while_live(self) -> None:
        """Raise TransitionError if a run is live.

        Lock the runs too, so that no run starts or is claimed from meanwhile.
        """
        Experiment.objects.select_for_update().get(pk=self.pk)
        for run in self.runs.select_for_update().order_by("pk"):
            if run.is_live:
                raise TransitionError(f"{run} of {self} is {run.status}; pause or cancel it first")
        if self.preflights.filter(status="running").exists():
            raise TransitionError(f"a preflight of {self} is being made; try again when it has ended")

    def get_first_wave_label(self) -> str:
        """Return the label of the first wave. An extension continues this wave by default."""
        first = self.waves.order_by("number").first()
        return first.label if first else ""

    def find_shareable_people(self) -> QuerySet[User]:
        """Return the active members and viewers, and the users with whom it is shared already. Exclude the owner."""
        rows = Q(is_active=True, groups__name__in=[*MEMBERS, VIEWER])
        if self.pk:
            rows |= Q(shared_experiments=self)
        return User.objects.filter(rows).exclude(pk=self.owner_id).distinct().order_by("username")

    def describe_imported(self) -> str:
        return (
            f"{self} holds results from {self.imported_from} and cannot run here; duplicate it, and choose "
            "models of this site"
        )

    def find_wave_overlap(self, label: str, samples: int) -> str:
        """Return why the wave with this label cannot have so many samples, or "" if it can.

        Each wave continues the epochs of the waves before it, so only the last wave can grow.
        """
        waves = list(self.waves.order_by("epoch_offset"))
        wave = next((wave for wave in waves if wave.label == label), None)
        if wave is None:
            return ""
        end = wave.epoch_offset + samples
        later = next((other for other in waves if wave.epoch_offset < other.epoch_offset < end), None)
        if later is None:
            return ""
        return (
            f"samples: {wave} cannot grow to {samples} samples, because {later} follows it and has the repetitions from"
            f" number {later.epoch_offset + 1} on. Only the last wave can grow. To repeat the design, launch a new wave"
        )

    @contextmanager
    def permit_deletion(self) -> Iterator[None]:
        """Allow this block to delete calls, done trials, verdicts and ledger entries of this experiment only.

        Database triggers refuse these deletions outside such a block. The block is one transaction.
        """
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(PERMIT, [str(self.pk)])
            yield
            cursor.execute(PERMIT, [""])
