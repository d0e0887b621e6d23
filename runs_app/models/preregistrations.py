"""Preregistrations: what the authors of an experiment plan, frozen before its launch."""

from __future__ import annotations

from typing import Any, Self

from django.conf import settings
from django.db import models

from evalsite.lib.constraints import constrain_numbers
from evalsite.lib.history import Actor, make_author_columns
from evalsite.lib.text.hashing import hash_content
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run

PARTS = {
    "hypotheses": "Hypotheses",
    "primary_measure": "Primary measure",
    "secondary_measures": "Secondary measures",
    "contrasts": "Contrasts",
    "exclusions": "Exclusions",
    "stopping_rule": "Stopping rule",
    "eligible_models": "Eligible models",
}
"""The parts of a plan with their headings. Measures and models are lists, the others are texts."""


class PreregistrationQuerySet(models.QuerySet["Preregistration"]):
    def unfinished(self) -> Self:
        """Return the plans of experiments with planned answers that have not ended, except those of cancelled runs."""
        return self.filter(experiment__in=Run.objects.expecting_answers().values("experiment"))


@constrain_numbers()
class Preregistration(models.Model):
    """The plan of one experiment with its hash and time. The database accepts it only before the launch.

    It never changes. `content` has PARTS, and `design` with the hash of the design at that time.
    """

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="preregistration")
    content = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the content")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(max_length=200, help_text="Name of the author at that time")
    frozen_at = models.DateTimeField(auto_now_add=True)

    objects = PreregistrationQuerySet.as_manager()

    def __str__(self) -> str:
        return f"preregistration of {self.experiment}"

    @classmethod
    def freeze(cls, experiment: Experiment, content: dict[str, Any], *, by: Actor) -> Preregistration:
        """Freeze a plan. The database refuses it if the experiment was launched, or has one."""
        user, actor = make_author_columns(by)
        row: Preregistration = cls.objects.create(
            experiment=experiment, content=content, digest=hash_content(content), by=user, actor=actor
        )
        return row

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The heading and the text of each part."""
        return [(heading, _to_text(self.content.get(name))) for name, heading in PARTS.items()]

    @property
    def measures(self) -> list[str]:
        """The names of the planned measures, the primary one first."""
        return [self.content["primary_measure"], *self.content["secondary_measures"]]

    def to_markdown(self) -> str:
        """Return the plan for an archive of preregistrations."""
        texts = [(heading, _to_text(self.content.get(name), bullet="- ")) for name, heading in PARTS.items()]
        parts = "\n\n".join(f"## {heading}\n\n{text or 'None.'}" for heading, text in texts)
        return (
            f"# Preregistration of {self.experiment.title or self.experiment.slug}\n\n"
            f"Frozen {self.frozen_at:%Y-%m-%d %H:%M:%S} UTC by {self.actor}, before the first call.\n\n"
            f"SHA-256 of the plan: `{self.digest}`\n\nSHA-256 of the design: `{self.content['design']}`\n\n{parts}\n"
        )


def _to_text(value: Any, bullet: str = "") -> str:
    return "\n".join(f"{bullet}{entry}" for entry in value) if isinstance(value, list) else str(value or "")
