"""The conditions, waves and manifests of experiments, and the names of conditions for people.

A name has only what differs between the conditions of an experiment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, Self

from django.conf import settings
from django.db import models

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from runs_app.experiment_options import BudgetPolicy
from runs_app.models.designs import Prompt, Sampler
from runs_app.models.endpoints import LanguageModel
from runs_app.models.experiments import Experiment


class WaveQuerySet(models.QuerySet["Wave"]):
    def answered(self) -> Self:
        """Return the waves in which models answered items of the design, in their order."""
        return (
            self.filter(runs__condition__stage=Condition.Stage.GENERATE, runs__n_done__gt=0)
            .distinct()
            .order_by("number")
        )


@constrain_numbers()
class Wave(models.Model):
    """A labelled repetition of the whole design.

    An epoch is the number of a repetition, counted over all waves. The epochs of this wave are `epoch_offset + 1` to
    `epoch_offset + samples`.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="waves")
    number = models.PositiveIntegerField(default=0)
    label = models.CharField(max_length=80, blank=True)
    epoch_offset = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = WaveQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "number"], name="wave_number_in_experiment"),
            models.UniqueConstraint(fields=["experiment", "label"], name="wave_label_in_experiment"),
        ]

    def __str__(self) -> str:
        """Return the label. One wave of an experiment may have none; it is usually the first."""
        return self.label or ("unlabelled wave" if self.number else "first wave")

    @property
    def url_name(self) -> str:
        """Return the wave's name in addresses."""
        return self.label or str(self.number)


@constrain_numbers()
@constrain_choices
class Condition(models.Model):
    """One combination of model, prompt and sampler, or a model that judges, writes rubrics or serves the gateway.

    `content` is a copy of model, prompt and sampler at the time of planning. Requests are rendered from it, and the
    database refuses to change it.
    """

    class Stage(models.TextChoices):
        GENERATE = "generate", "Answers"
        JUDGE = "judge", "Verdicts on answers"
        RUBRIC = "rubric", "Rubrics of items"
        EXTERNAL = "external", "Calls of other programs"

    stage = models.CharField(max_length=10, choices=Stage, default=Stage.GENERATE, db_default="generate")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="conditions")
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="conditions")
    prompt = models.ForeignKey(
        Prompt, on_delete=models.PROTECT, null=True, related_name="conditions", help_text="Empty for a judge"
    )
    sampler = models.ForeignKey(Sampler, on_delete=models.PROTECT, related_name="conditions")
    condition_id = models.CharField(max_length=255)
    content = models.JSONField(help_text="Model, prompt and sampler at the time of planning")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["experiment", "condition_id"], name="condition_in_experiment")]

    def __str__(self) -> str:
        return self.condition_id

    @property
    def prompt_label(self) -> str:
        """Return the prompt's name. A judge has no prompt: return the label of its stage."""
        return self.prompt.name if self.prompt else self.get_stage_display().lower()

    @property
    def content_hash(self) -> str:
        """Return the hash of its content, which ends its id."""
        return self.condition_id.rpartition("--")[2]

    @property
    def label(self) -> str:
        """Return the names of model, prompt and sampler. `condition_labels` has the shorter names of a list."""
        if self.prompt is None:
            return f"{self.model.name}, {self.prompt_label}"
        return f"{self.model.name} / {self.prompt.name} / {self.sampler.name}"

    def name_facets(self, versioned: bool, letters: Mapping[int, str] | None = None) -> tuple[str, str, str]:
        """Return the names of model, prompt and sampler. `letters` replace the names of models."""
        prompt, sampler = self.prompt, self.sampler
        model = letters[self.model_id] if letters else self.model.name
        if versioned:
            return model, str(prompt), str(sampler)
        return model, self.prompt_label, sampler.name


@constrain_numbers()
class Manifest(models.Model):
    """The record of a launch: design, hashes, prices and package versions.

    Each launch adds a row, which never changes.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="manifests")
    content = models.JSONField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.experiment} at {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def launch(self) -> dict[str, Any]:
        """Return the launched wave or pilot, its user and its estimate; empty if the manifest does not name them."""
        launch: dict[str, Any] = self.content.get("launch", {})
        return launch

    @property
    def summary(self) -> str:
        """Return a text such as `a pilot of 20, wave march, by ada`."""
        launch = self.launch
        scope = f"a pilot of {launch['pilot']}" if launch.get("pilot") else "all trials"
        if launch.get("policy") == BudgetPolicy.DEV:
            scope = f"{scope} under the dev policy"
        if condition_ids := launch.get("conditions"):
            scope = f"{scope} of {len(condition_ids)} condition{'' if len(condition_ids) == 1 else 's'}"
        wave = f", wave {launch['wave']}" if launch.get("wave") else ""
        author = launch.get("by") or self.created_by
        return f"{scope}{wave}" + (f", by {author}" if author else "")


def load_labels(experiments: Collection[int]) -> dict[int, str]:
    """Return the labels of all conditions of these experiments, by primary key, in one query.

    A judge's or a rubric writer's condition has the names of its model and stage.
    """
    rows = Condition.objects.filter(experiment__in=experiments).select_related("model", "prompt", "sampler")
    labels: dict[int, str] = {}
    for _, group in groupby(rows.defer("content").order_by("experiment", "pk"), key=lambda row: row.experiment_id):
        conditions = list(group)
        labels |= {row.pk: row.label for row in conditions}
        labels |= make_condition_labels([row for row in conditions if row.stage == Condition.Stage.GENERATE])
    return labels


def make_condition_labels(conditions: Sequence[Condition], letters: Mapping[int, str] | None = None) -> dict[int, str]:
    """Return labels that distinguish the conditions, in their order or in the order of a blind reading's letters.

    A label has the names of the facets that differ. If names are not enough, it has versions, too. If versions are not
    enough, it has the hash of the request, for example for a model that was changed under the same name.
    """
    if letters:
        positions = {key: position for position, key in enumerate(letters)}
        conditions = sorted(conditions, key=lambda condition: (positions[condition.model_id], condition.pk))
    labels: dict[int, str] = {}
    for versioned in (False, True):
        parts = {condition.pk: condition.name_facets(versioned, letters) for condition in conditions}
        differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
        labels = {
            pk: " · ".join(name for name, varies in zip(names, differs, strict=True) if varies) or names[0]
            for pk, names in parts.items()
        }
        if len(set(labels.values())) == len(labels):
            return labels
    label_counts = Counter(labels.values())
    hashes = {condition.pk: condition.content_hash for condition in conditions}
    return {pk: f"{label} ({hashes[pk]})" if label_counts[label] > 1 else label for pk, label in labels.items()}
