"""Judges whose rubric or item rubrics have a newer version, with a link to add the same judge with that version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.models import GradeCondition, Grader, Rubric
from runs_app.models import Experiment, TextSet


@dataclass(frozen=True, slots=True)
class RubricUpgrade:
    """The newer rubric or item rubrics of a judge, and the address of the form that adds the judge with them."""

    parts: tuple[Rubric | TextSet, ...]
    address: str

    @property
    def label(self) -> str:
        return " and ".join(str(part) for part in self.parts)


def find_rubric_upgrades(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, RubricUpgrade]:
    """Return the judges whose rubric or text set has a newer approved version that no judge uses yet, by condition.

    The number of queries is always two.
    """
    graders = {condition.pk: condition.grader for condition in conditions if condition.grader is not None}
    rubrics = _find_newest(Rubric, (grader.rubric.name for grader in graders.values()))
    sets = _find_newest(TextSet, (grader.text_set.name for grader in graders.values() if grader.text_set))
    used = {_get_identity(grader, grader.rubric, grader.text_set) for grader in graders.values()}
    upgrades = {}
    for pk, grader in graders.items():
        rubric = _find_later(rubrics, grader.rubric)
        texts = _find_later(sets, grader.text_set)
        if (rubric or texts) and _get_identity(grader, rubric or grader.rubric, texts or grader.text_set) not in used:
            initial = {name: part.pk for name, part in (("rubric", rubric), ("texts", texts)) if part}
            parts = tuple(part for part in (rubric, texts) if part)
            upgrades[pk] = RubricUpgrade(parts, get_judge_form_url(experiment, grader=grader.name, **initial))
    return upgrades


def get_judge_form_url(experiment: Experiment, **initial: Any) -> str:
    """Return the address of the judge form, with its fields filled in."""
    return f"{reverse('experiment_judge', args=[experiment.slug])}?{urlencode(initial)}"


def _find_newest(kind: Any, names: Iterable[str]) -> dict[str, Any]:
    approved = kind.objects.filter(name__in=set(names), status=kind.Status.APPROVED)
    return {part.name: part for part in approved.order_by("version")}


def _find_later(newest: dict[str, Any], part: Any) -> Any:
    candidate = newest.get(part.name) if part else None
    return candidate if candidate and candidate.version > part.version else None


def _get_identity(grader: Grader, rubric: Rubric, texts: TextSet | None) -> tuple[Any, ...]:
    return grader.language_model_id, grader.sampler_id, grader.on_empty, grader.longest_answer, rubric, texts
