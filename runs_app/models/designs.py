"""The versioned parts of a design: prompts, samplers and dimensions. The database freezes a version in use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from datasets_app.models.datasets import slug_validator
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, TransitionError, TransitionQuerySet
from evalsite.lib.permissions import is_curator, is_member
from evalsite.lib.text.characters import describe_unstorable
from evalsite.lib.text.hashing import hash_content
from runs_app.llm import parameters
from runs_app.models.bounded import HasOnlyKeys, InRange, RangeConstraint, build_range_constraints

NOT_COPIED = frozenset({"id", "version", "status", "content_hash", "created_by", "created_at", "approved_at"})
WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,9})\Z")


def build_approval_constraint(table: str) -> models.CheckConstraint:
    """Return the constraint that an approved version has a content hash and an approval time."""
    return models.CheckConstraint(
        condition=~models.Q(status="approved") | ~models.Q(content_hash="") & models.Q(approved_at__isnull=False),
        name=f"{table}_approval_is_complete",
    )


class VersionedQuerySet(TransitionQuerySet):
    def transition(self, *, target: str, **options: Any) -> list[int]:
        """Change the status. An approval also stores its time."""
        if target == Versioned.Status.APPROVED:
            options.setdefault("approved_at", Now())
        return super().transition(target=target, **options)

    def visible_to(self, user: Any) -> Self:
        return self if is_member(user) else self.none()

    def named(self, reference: str, *, author: Any = None) -> Self:
        """Return the version `name@version`, or for `name` alone its newest approved version.

        A version that nobody has approved never changes what a name means to others. While no version is approved, the
        name means the author's own newest version, to that author alone. An approved version that was archived still
        counts, so that its users learn of it.
        """
        name, _, version = reference.partition("@")
        if version:
            return self.filter(name=name, version=int(version)) if version.isdecimal() else self.none()
        approved = self.filter(name=name, approved_at__isnull=False).order_by("-version")
        if author is not None and not approved.exists():
            own = self.filter(name=name, created_by=author, status__in=Versioned.UNAPPROVED_HERE).order_by("-version")
            return self.filter(pk__in=own.values("pk")[:1])
        return self.filter(pk__in=approved.values("pk")[:1])

    def newest(self, reference: str) -> Self:
        """Return the version `name@version`, or for `name` alone its newest version of this site, approved or not.

        It is for people who manage the versions. Designs use `named`.
        """
        if "@" in reference:
            return self.named(reference)
        rows = self.filter(name=reference).exclude(status=Versioned.Status.IMPORTED).order_by("-version")
        return self.filter(pk__in=rows.values("pk")[:1])

    def suggest_version(self, name: str) -> str:
        """Return the end of an error about an unknown name: how to write an unapproved version of it."""
        version = self.filter(name=name, status__in=Versioned.UNAPPROVED).order_by("-version").first()
        if version is None:
            return ""
        if version.status == Versioned.Status.IMPORTED:
            return f"; write {version} for the version that came with a study or a file"
        return f"; write {version} for the version that nobody has approved"

    def offered(self) -> Self:
        """Return the versions that a design can be given: all that are neither archived nor imported."""
        return self.exclude(status__in=[Versioned.Status.ARCHIVED, Versioned.Status.IMPORTED])


class Versioned(HasHistory, models.Model):
    """A version of a named object. Its content is hashed, and can change only while the version is a draft.

    An imported version came with a study of another site, or with an experiment file whose author may not approve
    definitions. A used version is a draft that a launch has frozen. Nobody here has approved either of them: it serves
    its own study, and others find it only by its name and version.
    """

    APPROVAL: ClassVar[str] = "runs_app.approve_prompt"  # The permission to approve, or to define for everybody.

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        USED = "used", "Used, not approved"
        IMPORTED = "imported", "Imported"
        APPROVED = "approved", "Approved"
        ARCHIVED = "archived", "Archived"

    UNAPPROVED_HERE = (Status.DRAFT, Status.USED)
    UNAPPROVED = (*UNAPPROVED_HERE, Status.IMPORTED)
    IN_USE = (*UNAPPROVED, Status.APPROVED)

    name = models.CharField(max_length=80, validators=[slug_validator])
    version = models.PositiveIntegerField(default=1, editable=False)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT, editable=False)
    content_hash = models.CharField(max_length=64, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    approved_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = VersionedQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering = ["name", "-version"]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.content_hash = hash_content(self.content)
        if self.status == self.Status.APPROVED and self.approved_at is None:
            self.approved_at = timezone.now()
        if kwargs.get("update_fields") is not None:
            kwargs["update_fields"] = {*kwargs["update_fields"], "content_hash", "approved_at"}
        super().save(*args, **kwargs)

    def get_absolute_url(self) -> str:
        """Return the address of this version in the library."""
        kind = str(self._meta.verbose_name_plural)
        return f"{reverse('library_page', args=[kind, self.name])}?version={self.version}"

    def clean_fields(self, exclude: Any = None) -> None:
        """Check the fields, and refuse JSON that cannot be hashed or stored in a column."""
        super().clean_fields(exclude)
        json_fields = [field.name for field in self._meta.fields if isinstance(field, models.JSONField)]
        faults = {name: describe_unstorable(getattr(self, name)) for name in json_fields if name not in (exclude or ())}
        if any(faults.values()):
            raise ValidationError({name: f"The value {fault}." for name, fault in faults.items() if fault})

    @property
    def content(self) -> dict[str, Any]:
        """Return the content that identifies this version: everything that is sent to a model."""
        raise NotImplementedError

    @classmethod
    def get_next_version(cls, name: str) -> int:
        """Return the version after the newest one of this name; 1 for a new name."""
        newest = cls._default_manager.filter(name=name).aggregate(last=models.Max("version"))["last"]
        return int(newest or 0) + 1

    def copy_content(self) -> Self:
        """Return an unsaved draft with the same name and content."""
        names = [field.name for field in self._meta.concrete_fields if field.name not in NOT_COPIED]
        return type(self)(**{name: getattr(self, name) for name in names})

    def add_version(self, *, by: Any) -> None:
        """Save this unsaved row as the next version of its name, a draft of this author."""
        self.version, self.created_by = self.get_next_version(self.name), by
        self.save()

    def create_new_version(self, *, by: Any) -> Self:
        """Create and return a draft with the same content."""
        draft = self.copy_content()
        draft.add_version(by=by)
        return draft

    def approve(self, *, by: Actor, reason: str) -> None:
        """Approve and freeze this version.

        Raise ValueError for a problem in its content, TransitionError if it was approved before.
        """
        model: Any = type(self)
        with transaction.atomic():
            locked = model.objects.select_for_update().get(pk=self.pk)
            try:
                locked.clean()
            except ValidationError as problems:
                raise ValueError(f"{self} cannot be approved: {' '.join(problems.messages)}") from None
            model.objects.transition_one(self, sources=self.UNAPPROVED, target="approved", by=by, reason=reason)

    @classmethod
    def may_approve(cls, user: Actor) -> bool:
        """Return whether the user may approve versions, which defines them for everybody. A program always may."""
        return user is None or isinstance(user, str) or user.has_perm(cls.APPROVAL)

    def may_edit(self, user: Any) -> bool:
        """Return whether the user may change this version: a draft, by its author or by those who may approve it."""
        meta = self._meta
        return (
            self.status == self.Status.DRAFT
            and bool(user.has_perm(f"{meta.app_label}.change_{meta.model_name}"))
            and (self.created_by_id in (None, user.pk) or self.may_approve(user))
        )

    @classmethod
    def freeze_used(cls, keys: Iterable[int], *, by: Actor) -> None:
        """Freeze these drafts, because a launch uses them. They are approved if `by` may approve them."""
        target = cls.Status.APPROVED if cls.may_approve(by) else cls.Status.USED
        model: Any = cls
        drafts = model.objects.filter(pk__in=keys, status=cls.Status.DRAFT)
        drafts.transition(sources=["draft"], target=target, by=by, reason="Used by an experiment")

    def archive(self, *, by: Actor, reason: str) -> None:
        """Archive this version, so that new plans cannot use it. Trials that used it stay.

        Raise TransitionError if it is already archived, or if `by` may not archive it.
        """
        check_archivable(self, by)
        self.retire(by=by, reason=reason)

    def retire(self, *, by: Actor, reason: str) -> None:
        """Archive a version that a newer one replaces, without a check of its author.

        Raise TransitionError if it is already archived.
        """
        model: Any = type(self)
        model.objects.transition_one(self, sources=self.IN_USE, target="archived", by=by, reason=reason)


def check_archivable(row: Any, by: Actor, named_by: models.QuerySet[Any] | None = None) -> None:
    """Raise TransitionError unless `by` may archive a row that the group shares.

    A curator may. The author may, unless rows of other users refer to it. `by` may also be a string, which stands for a
    program or the shell: it may always. `named_by` are the experiments that refer to the row by name. The message does
    not name rows of other users, because they may be private.
    """
    if isinstance(by, str) or is_curator(by):
        return
    label = f"{row._meta.verbose_name} {row}"
    if row.created_by is None or row.created_by != by:
        raise TransitionError(f"{label} belongs to another user: only its author or a curator can archive it")
    is_named = named_by is not None and named_by.exclude(owner_id=row.created_by_id).exists()
    if used_by := "experiments" if is_named else next(_find_uses_by_others(row, by), ""):
        raise TransitionError(f"{label} is used by {used_by} of other users: only a curator can archive it")


def _find_uses_by_others(row: Any, by: Any) -> Iterator[str]:
    """Yield plural names of other users' rows that refer to this row. Check every relation to rows with an owner."""
    for relation in row._meta.related_objects:
        model: Any = relation.related_model
        names = {field.name for field in model._meta.get_fields()}
        owner_field = next((name for name in ("owner", "experiment", "created_by") if name in names), None)
        if owner_field is None:
            continue
        references = model._base_manager.filter(**{relation.field.name: row})
        lookup = "experiment__owner" if owner_field == "experiment" else owner_field
        if references.exclude(**{lookup: by}).exists():
            yield "experiments" if owner_field == "experiment" else str(model._meta.verbose_name_plural)


@constrain_numbers()
@constrain_choices
class Prompt(Versioned):
    """The messages of a conversation, with placeholders `{{name}}` for fields of the item. Approved before use."""

    class AnswerFormat(models.TextChoices):
        TEXT = "text", "Free text"
        RATING = "rating", "A rating, as strict JSON"
        RATING_WITH_REASONING = "rating_with_reasoning", "A rating with its reasoning"

    messages = models.JSONField(
        help_text='Turns: [{"role": "system", "content": "..."}, {"role": "user", "content": "{{input}}"}]'
    )
    answer_format = models.CharField(max_length=24, choices=AnswerFormat, default=AnswerFormat.TEXT)

    class Meta(Versioned.Meta):
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="prompt_name_version"),
            build_approval_constraint("runs_app_prompt"),
        ]
        permissions = [("approve_prompt", "Can approve and archive prompts")]

    @property
    def content(self) -> dict[str, Any]:
        return {"messages": self.messages, "answer_format": self.answer_format}

    def clean(self) -> None:
        from runs_app.llm import prompts

        problems = prompts.validate(self.messages)
        if problems:
            raise ValidationError({"messages": problems})


@constrain_numbers()
@constrain_choices
class Dimension(Versioned):
    """A dimension to rate: instructions and a scale of whole numbers. Any point of the scale may have a label."""

    title = models.CharField(max_length=120, blank=True)
    instructions = models.TextField()
    scale_min = models.IntegerField(default=1, validators=[InRange("dimension", "scale_min")])
    scale_max = models.IntegerField(default=7, validators=[InRange("dimension", "scale_max")])
    labels = models.JSONField(
        default=dict, blank=True, help_text='A label for each point: {"1": "Very low", "7": "Very high"}'
    )

    class Meta(Versioned.Meta):
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="dimension_name_version"),
            build_approval_constraint("runs_app_dimension"),
            models.CheckConstraint(
                condition=models.Q(scale_min__lt=models.F("scale_max")), name="dimension_scale_has_two_points"
            ),
            *build_range_constraints("dimension"),
        ]

    @property
    def content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "instructions": self.instructions,
            "min": self.scale_min,
            "max": self.scale_max,
            "labels": {str(point): label for point, label in self.labels.items()},
        }

    @property
    def scale(self) -> tuple[int, int]:
        """Return the lowest and the highest rating."""
        return self.scale_min, self.scale_max

    def clean(self) -> None:
        if not isinstance(self.labels, dict):
            raise ValidationError({"labels": "Enter a mapping of points to labels."})
        if self.scale_min is None or self.scale_max is None:
            return
        if self.scale_min >= self.scale_max:
            raise ValidationError({"scale_max": "The end of the scale must be above its start."})
        outside = sorted(str(point) for point in self.labels if not self._has_point(str(point)))
        if outside:
            raise ValidationError({"labels": f"These points are not on the scale: {', '.join(outside)}."})

    def _has_point(self, point: str) -> bool:
        # Compare numbers: a list of all points would be too large for a long scale.
        return bool(WHOLE_NUMBER.match(point)) and self.scale_min <= int(point) <= self.scale_max


@constrain_numbers()
@constrain_choices
class Sampler(Versioned):
    """The sampling parameters of a call. An empty setting means the provider's own default."""

    temperature = models.FloatField(null=True, blank=True, validators=[InRange("sampler", "temperature")])
    top_p = models.FloatField(null=True, blank=True, validators=[InRange("sampler", "top_p")])
    max_tokens = models.PositiveIntegerField(null=True, blank=True, validators=[InRange("sampler", "max_tokens")])
    seed = models.BigIntegerField(
        null=True,
        blank=True,
        validators=[InRange("sampler", "seed")],
        help_text="Seed of the first epoch. Each further epoch adds 1",
    )
    reasoning_effort = models.CharField(max_length=20, blank=True)
    extra = models.JSONField(
        default=dict,
        blank=True,
        help_text="Other parameters, as a JSON mapping",
    )

    class Meta(Versioned.Meta):
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="sampler_name_version"),
            *build_range_constraints("sampler"),
            RangeConstraint(
                condition=HasOnlyKeys("extra", keys=parameters.EXTRA_NAMES), name="runs_app_sampler_extra_is_allowed"
            ),
            build_approval_constraint("runs_app_sampler"),
        ]

    @property
    def content(self) -> dict[str, Any]:
        """Return the settings that have a value.

        Omitting the others keeps existing hashes when this class gains a parameter.
        """
        named = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort or None,
        }
        return {**self.extra, **{name: value for name, value in named.items() if value is not None}}

    @property
    def summary(self) -> str:
        """Return the settings in words, such as `temperature 0, at most 2,048 tokens`."""
        words = {"max_tokens": "at most {:,} tokens", "temperature": "temperature {:g}", "top_p": "top p {:g}"}
        parts = [
            words[name].format(value) if name in words else f"{name.replace('_', ' ')} {value}"
            for name, value in self.content.items()
        ]
        return ", ".join(parts) or "the provider's own settings"

    @property
    def limits_output(self) -> bool:
        """Return whether a parameter limits the length of the answer. Its name depends on the provider."""
        return parameters.limits_output(self.content)

    def compute_output_ceiling(self, model_limit: int | None = None) -> int | None:
        """Return the most output tokens of one call. Use `model_limit` if the sampler sets no limit."""
        return parameters.compute_output_ceiling(self.content, model_limit)

    def clean(self) -> None:
        if not isinstance(self.extra, dict):
            raise ValidationError({"extra": "Enter a mapping of parameter names to values."})
        if problems := parameters.find_extra_problems(self.extra):
            raise ValidationError({"extra": problems})
