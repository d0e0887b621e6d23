"""Notes, flags and tags: adding and finding them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction

from datasets_app.models import Item
from runs_app.models import Annotation, Experiment, Trial
from runs_app.models.annotations import MAX_TAG_LENGTH, MISSING, AnnotationError, clean_text

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
