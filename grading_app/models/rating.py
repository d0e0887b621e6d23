"""Ratings by people: a queue of units to rate, and each requested rating."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import Max
from django.db.models.functions import Greatest, Least
from django.urls import reverse
from django.utils import timezone

from datasets_app.models import Dataset, Item
from datasets_app.models.datasets import slug_validator
from evalsite.lib.constraints import LARGEST_FLOAT, constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, StatusChange, TransitionQuerySet, record_changes
from evalsite.lib.permissions import is_member, is_operator
from evalsite.lib.text.hashing import hash_content, hash_token
from grading_app.models.rubrics import FIRST, NEITHER, SECOND, Rubric
from runs_app.models import Condition, Dimension, Experiment, TextSet, Trial

RESERVED_NAMES = frozenset({"queues", "join", "new"})
"""Names that no queue may have, because they are part of a page's address."""


INVITATION_LIFETIME = timedelta(days=14)
MAX_INVITATIONS = 200
MAX_SEED = 2**31 - 1


class QueueError(ValueError):
    """A request that this queue or this rater does not allow; the message gives the reason."""


def validate_queue_name(name: str) -> None:
    if name in RESERVED_NAMES:
        raise ValidationError(f"The name {name} is reserved for a page. Choose another name.")


class RatingQueueQuerySet(TransitionQuerySet):
    def visible_to(self, user: Any) -> Self:
        """Return the queues that a member may see. A queue over answers is visible to the readers of its experiment.

        Raters reach a queue by their assignment instead.
        """
        if not is_member(user):
            return self.none()
        return self.filter(models.Q(experiment=None) | models.Q(experiment__in=Experiment.objects.visible_to(user)))

    def editable_by(self, user: Any) -> Self:
        if is_operator(user):
            return self
        return self.visible_to(user).filter(owner=user)

    def with_counts(self) -> Self:
        """Annotate each queue with `n_raters`, and with `n_given`, the number of given ratings in the database.

        `is_in_file` says that its ratings are in a file, as `stored_experiment` does.
        """
        given = models.Q(assignments__ratings__value__isnull=False)
        is_in_file = ~models.Q(status="draft") & models.Q(experiment__status=Experiment.Status.STORED)
        return self.annotate(
            is_in_file=models.Case(models.When(is_in_file, then=True), default=False),
            n_raters=models.Count("assignments", distinct=True),
            n_given=models.Count("assignments__ratings", filter=given),
        )


HASH_CHARS = 12  # Same length as in condition ids.


@dataclass(frozen=True, slots=True)
class NormBasis:
    """The ratings behind norms: their number, and a hash of item, dimension, rater and value."""

    n: int
    digest: str

    def __str__(self) -> str:
        return f"{self.n} rating{'' if self.n == 1 else 's'} (hash {self.digest})"


NORMS = "norms"


@constrain_numbers()
@constrain_choices
class RatingQueue(HasHistory, models.Model):
    """A set of units that people rate. Database triggers freeze it once it is open."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        OPEN = "open", "Open"
        CLOSED = "closed", "Closed"

    class Subject(models.TextChoices):
        ITEMS = "items", "The items of the dataset"
        ANSWERS = "answers", "The answers of an experiment, without their models"

    name = models.CharField(max_length=80, unique=True, validators=[slug_validator, validate_queue_name])
    title = models.CharField(max_length=200, help_text="Shown to raters")
    instructions = models.TextField(help_text="Shown to raters before the start and on request")
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="rating_queues")
    subject = models.CharField(max_length=10, choices=Subject, default=Subject.ITEMS, editable=False)
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="rating_queues",
        help_text="The experiment whose answers are rated",
    )
    conditions = models.ManyToManyField(
        Condition, blank=True, related_name="rating_queues", help_text="Empty: all conditions"
    )
    sample_items = models.PositiveIntegerField(
        "sample size",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Number of random items, the same for all conditions. Empty: all items",
    )
    answers_each = models.PositiveSmallIntegerField(
        "answers per condition",
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text="Number of answers per item and condition",
    )
    only_items = models.JSONField(
        "items", default=list, db_default=[], blank=True, help_text="Keys of the items to rate. Empty: all items"
    )
    sample_seed = models.PositiveIntegerField("seed", default=1, help_text="The same seed draws the same answers")
    dimensions = models.ManyToManyField(Dimension, blank=True, related_name="rating_queues")
    rubric = models.ForeignKey(
        Rubric,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="rating_queues",
        help_text="Replaces dimensions: raters grade answers by the same rubric as judges",
    )
    text_set = models.ForeignKey(
        TextSet,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="rating_queues",
        verbose_name="item rubrics",
        help_text="The texts that raters see for {{item_rubric}}",
    )
    raters_wanted = models.PositiveSmallIntegerField(
        "raters per item",
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text="Number of people who rate each item on each dimension",
    )
    items_per_rater = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="Empty: all that still need ratings"
    )
    one_dimension_per_rater = models.BooleanField(
        default=False, help_text="Dimensions are assigned to raters in equal numbers"
    )
    in_blocks = models.BooleanField(
        "one dimension at a time",
        default=False,
        help_text="Otherwise raters rate an item on all dimensions before the next item",
    )
    practice_items = models.PositiveSmallIntegerField(
        default=0, help_text="Every rater starts with the first items of the dataset. These ratings are not counted"
    )
    attention_checks = models.JSONField(default=dict, blank=True)  # {item key: [ratings that pass]}
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="rating_queues")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RatingQueueQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(subject="items", experiment=None)
                | models.Q(subject="answers", experiment__isnull=False),
                name="rating_queue_subject",
            ),
            models.CheckConstraint(condition=models.Q(raters_wanted__gte=1), name="rating_queue_wants_raters"),
            models.CheckConstraint(
                condition=models.Q(rubric=None) | models.Q(subject="answers"), name="rating_queue_rubric_of_answers"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("rating_queue_detail", args=[self.name])

    @property
    def rates_answers(self) -> bool:
        return self.subject == self.Subject.ANSWERS

    @property
    def rates_pairs(self) -> bool:
        """Return whether raters compare two answers to an item."""
        return self.rubric is not None and self.rubric.kind == Rubric.Kind.PAIRWISE

    @property
    def unit_label(self) -> str:
        """Return the noun for one rated unit, in lower case."""
        return "pair" if self.rates_pairs else "answer" if self.rates_answers else "item"

    @property
    def unit_label_plural(self) -> str:
        return f"{self.unit_label}s"

    @property
    def is_open(self) -> bool:
        return self.status == self.Status.OPEN

    @property
    def stored_experiment(self) -> Experiment | None:
        """Return its experiment if the answers and ratings of this queue are in a file with the experiment's rows."""
        was_open = self.status != self.Status.DRAFT
        return self.experiment if was_open and self.experiment and self.experiment.is_stored else None

    def lock_with_rows(self) -> None:
        """Lock the queue. Raise QueueError if the answers that it shows are in a file.

        A transaction that moves them to a file locks the queue first. So read the status after the lock.
        """
        RatingQueue.objects.select_for_update().get(pk=self.pk)
        if Experiment.objects.filter(rating_queues=self.pk, status=Experiment.Status.STORED).exists():
            raise QueueError(f"the rows of {self.experiment} are in a file; bring them back first")

    def list_practice_and_checks(self) -> tuple[list[Item], list[Item]]:
        """Return the practice items and the attention checks. Everybody rates them, and they never count."""
        checks = list(self.dataset.items.active().filter(key__in=self.attention_checks))
        ordinary = self.dataset.items.active().exclude(key__in=self.attention_checks)
        return list(ordinary.order_by("position", "pk")[: self.practice_items]), checks

    def select_rated_items(self) -> Any:
        """Return the items whose ratings count."""
        practice, checks = self.list_practice_and_checks()
        rated = self.dataset.items.active().exclude(pk__in=[item.pk for item in (*practice, *checks)])
        return rated.filter(key__in=self.only_items) if self.only_items else rated

    def list_rated_keys(self) -> list[int]:
        """Return the keys of the items, or of the drawn answers or pairs, whose ratings count."""
        rated = self.answers.filter(kind=Rating.Kind.ITEM) if self.rates_answers else self.select_rated_items()
        return list(rated.values_list("pk", flat=True))

    def close(self, *, by: Actor, reason: str) -> None:
        """Close the queue to ratings until it is opened again. Ratings stay."""
        Status = RatingQueue.Status
        RatingQueue.objects.transition_one(self, sources=[Status.OPEN], target=Status.CLOSED, by=by, reason=reason)

    @transaction.atomic
    def delete_draft(self, *, by: Actor, reason: str) -> None:
        locked = RatingQueue.objects.select_for_update().get(pk=self.pk)
        if locked.status != RatingQueue.Status.DRAFT:
            raise QueueError(f"{self} was opened and cannot be deleted; its ratings stay")
        record_changes([(self, "draft", "deleted")], by=by, reason=reason or self.name)
        locked.delete()

    @transaction.atomic
    def assign(self, user: Any, *, by: Actor, by_link: bool = False, alias: str = "") -> Any:
        """Add a rater to this queue. Raise QueueError if the user is a rater already, or if the queue is closed."""
        locked = RatingQueue.objects.select_for_update().get(pk=self.pk)
        if locked.status == RatingQueue.Status.CLOSED:
            raise QueueError(f"{self} is closed")
        if self.assignments.filter(user=user).exists():
            raise QueueError(f"{user.get_username()} is already a rater of {self}")
        number = (self.assignments.aggregate(last=Max("number"))["last"] or 0) + 1
        seed = secrets.randbelow(MAX_SEED)
        assignment = self.assignments.create(user=user, number=number, seed=seed, by_link=by_link, alias=alias)
        record_changes([(self, "", str(assignment))], by=by, reason="", aspect="rater")
        return assignment

    @transaction.atomic
    def invite(self, count: int, *, by: Any) -> list[str]:
        """Create invitations and return their tokens. Only hashes are stored, so the tokens cannot be shown again."""
        if not 1 <= count <= MAX_INVITATIONS:
            raise QueueError(f"create between 1 and {MAX_INVITATIONS} links at a time")
        tokens = [secrets.token_urlsafe(32) for _ in range(count)]
        expires_at = timezone.now() + INVITATION_LIFETIME
        kind: Any = self.invitations.model
        kind.objects.bulk_create(
            kind(queue=self, token_hash=hash_token(token), created_by=by, expires_at=expires_at) for token in tokens
        )
        record_changes([(self, "", f"{count} links")], by=by, reason="", aspect="invited")
        return tokens

    def select_answers(self) -> Any:
        """Return all stored answers that the queue could show, in the order of their keys."""
        of_design = Trial.objects.filter(
            run__experiment=self.experiment, run__condition__stage=Condition.Stage.GENERATE
        )
        answers = of_design.with_text().filter(item__excluded=False)
        conditions = list(self.conditions.values_list("pk", flat=True))
        answers = answers.filter(run__condition__in=conditions) if conditions else answers
        return answers.order_by("pk")

    def passes_check(self, key: str, value: float | None) -> bool:
        return value in self.attention_checks.get(key, [])

    def hash_ratings(self) -> NormBasis:
        """Return the number and the hash of the counted ratings, identified as in the export."""
        ratings = Rating.objects.counted().filter(assignment__queue=self)
        rows = ratings.values_list("item__key", "dimension__name", "assignment__number", "value")
        content = sorted([*row] for row in rows)
        return NormBasis(len(content), hash_content(content)[:HASH_CHARS])

    def find_outdated_norms(self) -> StatusChange | None:
        """Return the last creation of norms if the counted ratings have changed since, else None."""
        last = self.history.filter(aspect=NORMS).first()
        return last if last and str(self.hash_ratings()) not in last.to_value else None


class RatedAnswer(models.Model):
    """One answer in a queue, or two answers to compare. They are drawn once, when the queue first opens."""

    queue = models.ForeignKey(RatingQueue, on_delete=models.CASCADE, related_name="answers", db_index=False)
    trial = models.ForeignKey(Trial, on_delete=models.PROTECT, related_name="rated_in")
    rival = models.ForeignKey(
        Trial, on_delete=models.PROTECT, null=True, related_name="+", help_text="The second answer of a pair"
    )
    item = models.ForeignKey(Item, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=10)  # One of Rating.Kind, as for its ratings

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "trial", "rival"], name="answer_once_a_queue", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return f"{self.trial} in queue {self.queue_id}"


class RatingQuerySet(models.QuerySet["Rating"]):
    def given(self) -> Self:
        return self.exclude(value=None)

    def counted(self) -> Self:
        """Return the ratings that means, norms and agreement use: no practice, no checks, no excluded raters."""
        return self.given().filter(kind=Rating.Kind.ITEM, assignment__excluded_at=None)

    def with_levels(self) -> Any:
        """Annotate each rating with `low_trial` and `high_trial`, the rated answers by key, and with `level`.

        For two answers, `level` is 1 if `low_trial` won, 0 if it lost, and 0.5 for neither. Otherwise `level` is the
        value, and both keys are those of the single answer, or NULL if an item was rated.
        """
        lower_won = models.Q(value=FIRST, trial__lt=models.F("rival")) | models.Q(
            value=SECOND, trial__gt=models.F("rival")
        )
        return self.annotate(
            low_trial=Least("trial", "rival"),
            high_trial=Greatest("trial", "rival"),
            level=models.Case(
                models.When(rival=None, then=models.F("value")),
                models.When(value=NEITHER, then=models.Value(0.5)),
                models.When(lower_won, then=models.Value(1.0)),
                default=models.Value(0.0),
                output_field=models.FloatField(),
            ),
        )


@constrain_numbers(seconds=(0, LARGEST_FLOAT))
@constrain_choices
class Rating(models.Model):
    """One requested rating at its position in the rater's order. It has no value until it is given.

    It rates a dimension, or follows the rubric of its queue. The value by a rubric depends on its kind: 1 or 0 for a
    criterion that is met or not; the score; the number of the label, from 1; or, for two answers, the first shown (1),
    the second (2) or neither (0). The database checks that the value is on its scale, and that the queue is open at
    every change.
    """

    class Kind(models.TextChoices):
        PRACTICE = "practice", "Practice"
        ITEM = "item", "Item"
        CHECK = "check", "Attention check"

    assignment = models.ForeignKey(
        "grading_app.RaterAssignment", on_delete=models.CASCADE, related_name="ratings", db_index=False
    )
    item = models.ForeignKey(Item, on_delete=models.PROTECT, related_name="ratings")
    trial = models.ForeignKey(
        Trial,
        on_delete=models.PROTECT,
        null=True,
        related_name="ratings",
        help_text="The trial whose answer is rated",
    )
    rival = models.ForeignKey(
        Trial, on_delete=models.PROTECT, null=True, related_name="+", help_text="The answer shown second, for a pair"
    )
    dimension = models.ForeignKey(Dimension, on_delete=models.PROTECT, null=True, related_name="ratings")
    criterion = models.CharField(
        max_length=80, default="", db_default="", blank=True, help_text="A criterion of the queue's rubric"
    )
    kind = models.CharField(max_length=10, choices=Kind)
    position = models.PositiveIntegerField(help_text="The position in the rater's order, from 1")
    value = models.FloatField(null=True)
    seconds = models.FloatField(null=True, help_text="Seconds from showing the item to the rating")
    revisions = models.PositiveSmallIntegerField(default=0, help_text="How often the rater undid it")
    rated_at = models.DateTimeField(null=True)

    objects = RatingQuerySet.as_manager()

    class Meta:
        ordering = ["assignment", "position"]
        constraints = [
            models.UniqueConstraint(fields=["assignment", "position"], name="rating_place"),
            models.UniqueConstraint(
                fields=["assignment", "item", "trial", "rival", "dimension", "criterion"],
                name="rating_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=models.Q(value=None, rated_at=None, seconds=None)
                | models.Q(value__isnull=False, rated_at__isnull=False, seconds__isnull=False),
                name="rating_given_or_not",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.assignment}, {self.position}: {'-' if self.value is None else f'{self.value:g}'}"
