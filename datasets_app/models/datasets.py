"""The dataset model: a named, versioned set of items that is frozen at approval.

A dataset of parametric tasks has the space of difficulty from which it was generated.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import connection, models, transaction
from django.db.models import Avg, Count, F, Max, Min
from django.db.models.deletion import ProtectedError
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property

from datasets_app.content_hash import hash_contents
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.favourites import StarredQuerySet
from evalsite.lib.history import (
    Actor,
    HasHistory,
    TransitionError,
    TransitionQuerySet,
    record_changes,
    save_with_history,
)
from evalsite.lib.permissions import is_member, is_viewer

ABOUT = ("title", "description", "source", "licence")
BATCH = 2000
SUMMARY_CHARS = 200  # The length of StatusChange.to_value.

slug_validator = RegexValidator(
    r"^[a-z0-9][a-z0-9_-]*\Z", "Use small letters, digits, - and _, starting with a letter or digit."
)
RECIPE_WORDS = {
    "strategy": "Strategy",
    "n": "Items drawn",
    "seed": "Seed",
    "from": "Drawn from",
    "from_hash": "Hash of that set",
    "space": "Space",
    "points": "Points",
    "precision": "Precision",
    "density": "Density",
    "degree": "Degree",
    "definition_hash": "Hash of the definition",
}
"""The label of each part of a recipe."""
MAX_USES = 50
"""The number of experiments on the page of a dataset."""


class CurationError(ValueError):
    """A request that this dataset does not allow. The message gives the reason; nothing was changed."""


def list_keys(keys: Collection[str]) -> str:
    """Return a text such as "3 items: a, b, c", cut to SUMMARY_CHARS."""
    text = f"{len(keys)} item{'' if len(keys) == 1 else 's'}: {', '.join(keys)}"
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"


class DatasetQuerySet(StarredQuerySet, TransitionQuerySet):
    def visible_to(self, user: Any) -> Self:
        """Return the datasets that the user may see.

        Members see all datasets. A viewer sees the datasets of experiments that they may see.
        """
        if is_member(user):
            return self
        if is_viewer(user):
            is_shared = models.Q(experiments__sharing="group") | models.Q(experiments__shared_with=user)
            return self.filter(pk__in=self.model.objects.filter(is_shared).values("pk"))
        return self.none()

    def named(self, reference: str) -> Self:
        """Return the dataset `slug@version`, or the newest version for `slug` alone."""
        slug, _, version = reference.partition("@")
        if version:
            return self.filter(slug=slug, version=int(version)) if version.isdecimal() else self.none()
        newest = self.filter(slug=slug).order_by("-version").values("pk")[:1]
        return self.filter(pk__in=newest)

    def get_next_version(self, slug: str) -> int:
        """Return the version after the newest one of this name; 1 for a new name.

        An advisory lock keeps other transactions from taking a version of this name until this transaction ends.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"dataset {slug}"])
        return 1 + (self.filter(slug=slug).aggregate(newest=models.Max("version"))["newest"] or 0)


@constrain_numbers()
@constrain_choices
class Dataset(HasHistory, models.Model):
    """A version of a named set of items. A database trigger freezes the items when the dataset is approved."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        APPROVED = "approved", "Approved"
        ARCHIVED = "archived", "Archived"

    slug = models.CharField(max_length=80, validators=[slug_validator])
    version = models.PositiveIntegerField(default=1)
    title = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT, editable=False)
    source = models.TextField(blank=True, help_text="A citation or web address")
    licence = models.CharField(max_length=200, blank=True)
    source_name = models.CharField(max_length=255, blank=True, help_text="Name of the imported file")
    source_sha256 = models.CharField(max_length=64, blank=True, help_text="Hash of the imported file")
    mapping = models.JSONField(default=dict, blank=True, help_text="The source column of each field")
    recipe = models.JSONField(default=dict, blank=True, help_text="How a sample was drawn: strategy, n, seed")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    content_hash = models.CharField(
        max_length=64, blank=True, editable=False, help_text="Hash of the active items at approval"
    )
    item_count = models.PositiveIntegerField(default=0, editable=False)
    active_count = models.PositiveIntegerField(default=0, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    starred_by = models.ManyToManyField(
        settings.AUTH_USER_MODEL, editable=False, related_name="starred_datasets", help_text="Favourite of"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    approved_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = DatasetQuerySet.as_manager()

    class Meta:
        ordering = ["slug", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["slug", "version"], name="dataset_slug_version"),
            models.CheckConstraint(
                condition=~models.Q(status="approved")
                | ~models.Q(content_hash="") & models.Q(approved_at__isnull=False),
                name="datasets_app_dataset_approval_is_complete",
            ),
        ]
        permissions = [("approve_dataset", "Can approve and archive datasets")]

    def __str__(self) -> str:
        return f"{self.slug}@{self.version}"

    def get_absolute_url(self) -> str:
        return reverse("dataset_detail", args=[self.slug, self.version])

    def get_star_url(self) -> str:
        return reverse("dataset_star", args=[self.slug, self.version])

    @property
    def is_draft(self) -> bool:
        return self.status == self.Status.DRAFT

    @property
    def is_parametric(self) -> bool:
        """Return whether its items are cases of parametric tasks, generated for it or copied from another dataset."""
        return bool(self.recipe.get("strategy") == "parametric" or self.recipe.get("parametric"))

    @cached_property
    def has_images(self) -> bool:
        """Return whether any item has an image. Such a dataset opens as a gallery, another one as a table."""
        return self.items.filter(image__isnull=False).exists()

    def add_history_line(self, aspect: str, message: str, *, by: Actor, reason: str = "") -> None:
        """Add a line to the dataset's history for an event that does not change its status."""
        record_changes([(self, "", message[:SUMMARY_CHARS])], by=by, reason=reason, aspect=aspect)

    def may_be_described_by(self, by: Actor) -> bool:
        """Return whether this person may change title, description, source and licence.

        Any member may describe a draft. People cite an approved dataset by these fields, so only its owner and curators
        may change them then. A text stands for a program or the shell, which may always.
        """
        if by is None or isinstance(by, str) or self.is_draft:
            return True
        return (self.created_by_id is not None and self.created_by_id == by.pk) or by.has_perm(
            "datasets_app.approve_dataset"
        )

    def refresh_counts(self) -> None:
        """Count the items and the active items, and store both numbers."""
        counts = self.items.aggregate(
            all=models.Count("pk"), active=models.Count("pk", filter=models.Q(excluded=False))
        )
        self.item_count, self.active_count = counts["all"], counts["active"]
        self.save(update_fields=["item_count", "active_count"])

    def lock_draft(self) -> None:
        """Lock the dataset's row until the transaction ends.

        Raise TransitionError if it is not a draft, and CurationError if it no longer exists.
        """
        row = Dataset.objects.select_for_update().filter(pk=self.pk).first()
        if row is None:
            raise CurationError(f"{self} does not exist any more")
        if not row.is_draft:
            raise TransitionError(f"{self} is {row.status}; only a draft can change: duplicate it to a new one")

    @contextmanager
    def change_draft(self) -> Iterator[None]:
        """Run the block in a transaction that locks the draft's row first and counts its items at the end.

        The lock must come before any change of an item. The triggers of the items take a shared lock on the same row.
        Two changes that both hold the shared lock would deadlock at the count. Raise TransitionError if the dataset is
        no longer a draft.
        """
        with transaction.atomic():
            self.lock_draft()
            yield
            self.refresh_counts()

    def _require_reason(self, reason: str, verb: str) -> None:
        if not reason.strip():
            raise CurationError(f"reason: say why to {verb} {self}")

    def hash_items(self) -> str:
        """Return the hash of the active items and their norms as they are in the database now."""
        items = self.items.active().order_by("pk").prefetch_related("norms")
        return hash_contents(item.content for item in items.iterator(chunk_size=BATCH))

    @transaction.atomic
    def approve(self, *, by: Actor, reason: str) -> None:
        """Freeze a draft that has at least one active item, and store the hash of its content.

        Database triggers make this permanent.
        """
        self._require_reason(reason, "approve")
        self.lock_draft()  # Wait for concurrent changes. Later changes find it approved and fail.
        self.refresh_counts()
        if not self.active_count:
            raise CurationError(f"{self} has no active item to approve")
        Dataset.objects.transition_one(
            self,
            sources=[Dataset.Status.DRAFT],
            target=Dataset.Status.APPROVED,
            by=by,
            reason=reason,
            content_hash=self.hash_items(),
            approved_at=timezone.now(),
        )

    def archive(self, *, by: Actor, reason: str) -> None:
        """Retire an approved dataset, so that new experiments cannot use it. Existing experiments keep it."""
        self._require_reason(reason, "archive")
        Dataset.objects.transition_one(
            self, sources=[Dataset.Status.APPROVED], target=Dataset.Status.ARCHIVED, by=by, reason=reason
        )

    def delete_draft(self, *, by: Actor, reason: str = "") -> None:
        """Delete a draft that no other dataset was drawn from.

        Its history remains and names the person who deleted it.
        """
        try:
            with transaction.atomic():
                self.lock_draft()
                record_changes([(self, Dataset.Status.DRAFT, "deleted")], by=by, reason=reason or str(self))
                self.delete()
        except ProtectedError as error:
            # Experiments are not named, because they may be private.
            users = {
                str(row) if isinstance(row, Dataset) else f"another {row._meta.verbose_name}"
                for row in error.protected_objects
            }
            raise CurationError(f"{self} is in use by {', '.join(sorted(users)[:5])}") from None

    def change_description(self, about: Mapping[str, str], *, by: Actor, reason: str = "") -> list[str]:
        """Change title, description, source or licence, and return the names of the changed fields.

        History records the old and the new values. These fields are not frozen, but people cite them. Unless the
        dataset is a draft, a reason is therefore required, and only its owner or a curator may change them.
        """
        with transaction.atomic():
            current = Dataset.objects.select_for_update(no_key=True).get(pk=self.pk)
            changed = [name for name in ABOUT if name in about and getattr(current, name) != about[name]]
            if not changed:
                return []
            if not current.may_be_described_by(by):
                raise CurationError(
                    f"{self} belongs to another user: only its owner or a curator can change its {', '.join(changed)}"
                )
            if not current.is_draft:
                self._require_reason(reason, f"change {', '.join(changed)} of")
            for name in changed:
                setattr(current, name, about[name])
            try:
                current.clean_fields(exclude={field.name for field in Dataset._meta.fields} - set(changed))
            except ValidationError as error:
                field, messages = next(iter(error.message_dict.items()))
                raise CurationError(f"{field}: {messages[0]}") from None
            save_with_history(current, by=by, reason=reason, fields=changed)
        for name in changed:
            setattr(self, name, about[name])
        return changed

    def refuse_missing_items(self, missing: Collection[str]) -> None:
        if missing:
            raise CurationError(f"not among the items of {self}: {list_keys(missing)}")

    def find_items(self, keys: Collection[str]) -> Any:
        """Return the items with these keys. Raise CurationError if one is missing or no key is given."""
        if not keys:
            raise CurationError("no item was named")
        existing = set(self.items.filter(key__in=keys).values_list("key", flat=True))
        self.refuse_missing_items([key for key in keys if key not in existing])
        return self.items.filter(key__in=keys)

    def exclude_items(self, keys: Sequence[str], *, by: Actor, reason: str) -> None:
        """Exclude items of a draft. They stay in it but are not sampled, approved or sent to models."""
        if not reason.strip():
            raise CurationError("note: say why the items are excluded")
        with self.change_draft():
            self.find_items(keys).update(excluded=True, note=reason)
            self.add_history_line("excluded", list_keys(keys), by=by, reason=reason)

    def include_items(self, keys: Sequence[str], *, by: Actor, reason: str = "") -> None:
        """Include excluded items of a draft again."""
        with self.change_draft():
            self.find_items(keys).update(excluded=False, note="")
            self.add_history_line("included", list_keys(keys), by=by, reason=reason)

    def remove_items(self, keys: Sequence[str], *, by: Actor, reason: str = "") -> None:
        """Delete items from a draft. To keep them with a reason instead, use `exclude_items`."""
        with self.change_draft():
            self.find_items(keys).delete()
            self.add_history_line("items", f"removed {list_keys(keys)}", by=by, reason=reason)

    def describe_recipe(self) -> list[tuple[str, str]]:
        """Return the recipe of a sample as pairs of label and value."""
        values = ((label, self.recipe.get(name)) for name, label in RECIPE_WORDS.items())
        return [(label, str(value)) for label, value in values if value not in (None, "")]

    def find_related(self, user: Any) -> dict[str, list[Any]]:
        """Return other versions of the name, datasets drawn from it, and experiments on it that the user may see."""
        experiments: Any = self.experiments  # Of an app above this one.
        visible = Dataset.objects.visible_to(user)
        return {
            "versions": list(visible.filter(slug=self.slug).exclude(pk=self.pk)[:20]),
            "children": list(visible.filter(parent=self).order_by("slug", "version")[:20]),
            "uses": list(experiments.visible_to(user).order_by("slug")[:MAX_USES]),
        }

    def count_active_by_category(self) -> dict[str, int]:
        counts = self.items.active().order_by("category").values_list("category").annotate(Count("pk"))
        return dict(counts)

    def iterate_answer_key(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of an answer key: text and target; for a generated item, also task and parameters."""
        items = self.items.active().exclude(target="").values_list("input", "target", "choices", "metadata")
        for text, target, choices, metadata in items.iterator(chunk_size=BATCH):
            is_case = "params" in metadata and "task" in metadata
            case = {"task": metadata["task"], "params": metadata["params"], "choices": choices} if is_case else {}
            yield {"text": text, "target": target, **case}

    def summarize_norms(self) -> list[dict[str, Any]]:
        """Return one row per dimension: items with a norm; mean, lowest and highest of their means; the mean n."""
        normed: Any = self.items.exclude(norms=None).order_by("norms__dimension")
        rows = normed.values(dimension=F("norms__dimension")).annotate(
            items=Count("norms"),
            average=Avg("norms__mean"),
            lowest=Min("norms__mean"),
            highest=Max("norms__mean"),
            people=Avg("norms__n"),
        )
        return list(rows)


@constrain_numbers()
class ParametricSpace(models.Model):
    """The space that a dataset was generated from. A database trigger freezes it with the dataset.

    The definition is stored as text, because the seeds of the cases distinguish 1 from 1.0.
    """

    dataset = models.OneToOneField(Dataset, on_delete=models.CASCADE, related_name="parametric_space")
    file = models.TextField(help_text="The space in YAML or JSON, unchanged")
    task_files = models.JSONField(default=dict, blank=True, help_text="Task files that the space names, by name")
    definition = models.TextField(
        help_text="Points, seed and generator versions as JSON. It generates the same items again"
    )
    definition_hash = models.CharField(max_length=64, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"space of {self.dataset}"

    def read_definition(self) -> dict[str, Any]:
        """Return the definition as `Space.definition` returned it."""
        content: dict[str, Any] = json.loads(self.definition)
        return content
