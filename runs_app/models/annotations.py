"""Notes, flags and tags that people put on trials and items: adding and finding them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models.functions import Length
from django.db.models.lookups import LessThanOrEqual
from django.urls import reverse
from django.utils import timezone

from datasets_app.models import Item
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.permissions import is_member, is_operator
from runs_app.models.experiments import Experiment
from runs_app.models.trials import Trial

MAX_TEXT_LENGTH = 4_000
MAX_TAG_LENGTH = 40
MISSING = {"note": "Enter a note.", "flag": "Enter the reason for the flag.", "tag": "Enter at least one tag."}
"""The error of an empty text, by kind."""


class AnnotationError(ValueError):
    """A text that cannot be stored. The message says what to change; nothing was changed."""


def clean_text(kind: str, text: str) -> str:
    """Return the text of a note or of a flag, stripped. Raise AnnotationError if it is empty or too long."""
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise AnnotationError(MISSING[kind])
    if len(text) > MAX_TEXT_LENGTH:
        raise AnnotationError(f"Use at most {MAX_TEXT_LENGTH:,} characters; these are {len(text):,}.")
    return text


class AnnotationQuerySet(models.QuerySet["Annotation"]):
    def visible_to(self, user: Any) -> Self:
        """Return the annotations of trials of visible experiments, and of items of visible datasets."""
        of_trials = models.Q(experiment__in=Experiment.objects.visible_to(user))
        of_items = models.Q(experiment=None, item__in=Item.objects.visible_to(user))
        return self.filter(of_trials | of_items)

    def current(self) -> Self:
        """Return the annotations that are not removed."""
        return self.filter(removed=False)

    def of_experiment(self, experiment: Experiment) -> Self:
        """Return the annotations of the experiment's trials, and of the items of its dataset."""
        of_items = models.Q(experiment=None, item__dataset=experiment.dataset_id)
        return self.filter(models.Q(experiment=experiment) | of_items)

    def flags(self) -> Self:
        return self.filter(kind=Annotation.Kind.FLAG)


@constrain_numbers()
@constrain_choices
class Annotation(models.Model):
    """A note, a flag with its reason, or a tag, on a trial or on an item.

    `item` is always set. An annotation of a trial also names the trial and its experiment. A database trigger appends
    the former text to `former` at each change; removed annotations stay as rows.
    """

    class Kind(models.TextChoices):
        NOTE = "note", "Note"
        FLAG = "flag", "Flag"
        TAG = "tag", "Tag"

    item = models.ForeignKey(Item, on_delete=models.CASCADE, related_name="annotations")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, null=True, related_name="annotations")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, null=True, related_name="annotations")
    kind = models.CharField(max_length=4, choices=Kind)
    text = models.TextField(help_text="The note, the reason of the flag, or the tag")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    changed_at = models.DateTimeField(null=True)
    removed = models.BooleanField(default=False, db_default=False)
    former = models.JSONField(
        default=list,
        db_default=[],
        editable=False,
        help_text="Former texts with author and time; a trigger writes them",
    )

    objects = AnnotationQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(trial=None, experiment=None)
                | models.Q(trial__isnull=False, experiment__isnull=False),
                name="annotation_trial_has_experiment",
            ),
            models.CheckConstraint(
                condition=models.Q(models.Q(text__regex=r"\S"), LessThanOrEqual(Length("text"), MAX_TEXT_LENGTH)),
                name="annotation_has_text",
            ),
            models.CheckConstraint(
                condition=~models.Q(kind="tag") | models.Q(text__regex=rf"^[^A-Z,\s]{{1,{MAX_TAG_LENGTH}}}$"),
                name="annotation_tag_is_normalised",
            ),
            models.CheckConstraint(
                condition=models.Q(changed_by=None, changed_at=None, removed=False)
                | models.Q(changed_by__isnull=False, changed_at__isnull=False),
                name="annotation_change_has_author",
            ),
            models.UniqueConstraint(
                fields=["item", "trial", "text"],
                condition=models.Q(kind="tag", removed=False),
                nulls_distinct=False,
                name="annotation_tag_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} on {self.subject}: {self.text[:60]}"

    def get_absolute_url(self) -> str:
        """Return the URL of the page of its trial or item."""
        name, key = ("trial_detail", self.trial_id) if self.trial_id else ("item_page", self.item_id)
        return f"{reverse(name, args=[key])}#annotations"

    @property
    def subject(self) -> str:
        return f"trial {self.trial_id}" if self.trial_id else f"item {self.item_id}"

    def may_be_changed_by(self, user: User) -> bool:
        """Return True for its author, the owner of its experiment and operators, as long as they are members."""
        is_owner = self.experiment is not None and self.experiment.owner_id == user.pk
        return is_member(user) and (is_operator(user) or self.author_id == user.pk or is_owner)

    @transaction.atomic
    def _change(self, by: User, **changes: str | bool) -> None:
        locked = Annotation.objects.select_for_update().get(pk=self.pk)
        if locked.removed:
            raise AnnotationError("Another user removed this annotation in the meantime.")
        if all(getattr(locked, name) == value for name, value in changes.items()):
            return
        Annotation.objects.filter(pk=locked.pk).update(**changes, changed_by=by, changed_at=timezone.now())

    def change_text(self, text: str, *, by: User) -> None:
        """Replace the text of a note or of a flag. The former text stays in its history."""
        if self.kind == self.Kind.TAG:
            raise AnnotationError("A tag cannot be edited. Remove it and add another.")
        cleaned = clean_text(self.kind, text)
        self._change(by, text=cleaned)

    def remove(self, *, by: User) -> None:
        """Remove the annotation from pages, filters and exports. Its row stays."""
        self._change(by, removed=True)


MAX_TAGS = 20
"""Tags that one form may add."""
Kind = Annotation.Kind


def normalize_tag(text: str) -> str:
    """Return the tag in lower case, with one hyphen for each stretch of white space.

    Raise AnnotationError if it is too long.
    """
    tag = re.sub(r"\s+", "-", unicodedata.normalize("NFKC", text).strip().lower())
    if len(tag) > MAX_TAG_LENGTH:
        raise AnnotationError(f"“{tag[:60]}” is too long for a tag; use at most {MAX_TAG_LENGTH} characters.")
    return tag


def read_tags(text: str) -> list[str]:
    """Return the normalised tags of a comma-separated text, each once. Raise AnnotationError if there are none."""
    tags = list(dict.fromkeys(tag for part in text.split(",") if (tag := normalize_tag(part))))
    if not tags:
        raise AnnotationError(MISSING[Kind.TAG])
    if len(tags) > MAX_TAGS:
        raise AnnotationError(f"Enter at most {MAX_TAGS} tags at a time.")
    return tags


def annotate(subject: Trial | Item, kind: str, text: str, *, by: User) -> list[Annotation]:
    """Add a note, a flag or comma-separated tags. Return the added rows: tags that the subject has are not added again.

    The caller has checked that the user may see the subject. Raise AnnotationError if the text is not valid.
    """
    texts = read_tags(text) if kind == Kind.TAG else [clean_text(kind, text)]
    columns: dict[str, Any] = {"item_id": subject.pk, "trial_id": None, "experiment_id": None}
    if isinstance(subject, Trial):
        experiment = subject.run.experiment_id
        columns = {"item_id": subject.item_id, "trial_id": subject.pk, "experiment_id": experiment}
    with transaction.atomic():
        Item.objects.select_for_update(no_key=True).get(
            pk=columns["item_id"]
        )  # Two people may add the same tag at once.
        if kind == Kind.TAG:
            present = Annotation.objects.current().filter(kind=kind, text__in=texts, **columns)
            texts = [tag for tag in texts if tag not in set(present.values_list("text", flat=True))]
        return [Annotation.objects.create(kind=kind, text=entry, author=by, **columns) for entry in texts]


def list_annotations(subject: Trial | Item) -> list[Annotation]:
    """Return the current annotations of an item, or of a trial and its item, oldest first."""
    item, trial = (subject.item_id, subject.pk) if isinstance(subject, Trial) else (subject.pk, None)
    of_both = models.Q(trial=None) | models.Q(trial=trial)
    annotations = Annotation.objects.current().filter(of_both, item=item)
    return list(annotations.select_related("author", "changed_by", "experiment"))


def list_flagged_items(experiment: Experiment) -> list[int]:
    """Return the keys of the experiment's items that are flagged, or that have a flagged trial in it."""
    flags = Annotation.objects.current().of_experiment(experiment).flags()
    return list(flags.order_by("item__position", "item").values_list("item", flat=True).distinct())


def group_by_item(annotations: Sequence[Annotation]) -> dict[int, list[Annotation]]:
    by_item: dict[int, list[Annotation]] = {}
    for annotation in annotations:
        by_item.setdefault(annotation.item_id, []).append(annotation)
    return by_item


def group_by_trial(trials: Sequence[Trial]) -> dict[int, list[Annotation]]:
    """Return the current annotations of these trials and of their items, by trial. Trials without any are absent."""
    trials_by_item: dict[int, list[int]] = {}
    for trial in trials:
        if trial.item_id is not None:
            trials_by_item.setdefault(trial.item_id, []).append(trial.pk)
    on_either = models.Q(trial__in=[trial.pk for trial in trials]) | models.Q(trial=None, item__in=trials_by_item)
    by_trial: dict[int, list[Annotation]] = {}
    for annotation in Annotation.objects.current().filter(on_either) if trials else ():
        subjects = [annotation.trial_id] if annotation.trial_id else trials_by_item[annotation.item_id]
        for trial_id in subjects:
            by_trial.setdefault(trial_id, []).append(annotation)
    return by_trial
