"""The lookup of graders and panels by name or rubric, for files and commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from django.contrib.auth.models import User
from django.db.models import Q

from evalsite.lib.history import Actor
from evalsite.lib.text.names import NamedChoice, UnknownNameError, find_named
from grading_app.models import Grader, Panel, Rubric
from runs_app.models import Experiment, TextSet
from runs_app.planning.work import PlanError


def choose_graders(
    experiment: Experiment, names: Sequence[str], rubric: str | None, texts: str | None = None
) -> list[Grader]:
    """Return the graders with these names, or all graders of a rubric.

    A name is that of a grader, or of its scores on the experiment's pages. With names and a rubric or texts, return
    variants of the named graders that use them.
    New variants are not saved; `save_graders` saves them. Raise PlanError with every name that does not exist.
    """
    rubric_row = None if rubric is None else _find_rubric(rubric)
    text_set = None if texts is None else _find_texts(texts)
    if names:
        return [grader.make_variant(rubric_row, text_set) for grader in _find_by_names(experiment, names)]
    if text_set is not None:
        raise PlanError(["texts: also name the grader that judges with them"])
    if rubric_row is None:
        return []
    graders = list(Grader.objects.with_parts().in_use().filter(rubric=rubric_row))
    if not graders:
        raise PlanError([f"rubric: no grader uses {rubric_row}; also name the grader that judges by it"])
    return graders


def _find_by_names(experiment: Experiment, names: Sequence[str]) -> list[Grader]:
    keys: dict[int, list[str]] = defaultdict(list)
    for condition in experiment.grade_conditions.filter(kind="judge", grader__isnull=False):
        keys[cast(int, condition.grader_id)].extend((f"g{condition.pk}", condition.grade_condition_id))
    # An archived grader is found by its own name only, so that the error can say that it is archived.
    graders = Grader.objects.with_parts().filter(Q(archived_at=None) | Q(name__in=names)).order_by("name")
    choices = [
        NamedChoice(
            grader,
            grader.name,
            (
                grader.name,
                f"{grader.rubric.display_name} ({grader.name})",
                f"{grader.name} ({grader.rubric})",
                *keys[grader.pk],
            ),
        )
        for grader in graders
    ]
    found, problems = [], []
    for name in names:
        try:
            found.append(find_named(name, choices, "grader"))
        except UnknownNameError as error:
            problems.append(f"grader: {error}")
    if problems:
        raise PlanError(problems)
    return list(dict.fromkeys(found))


def find_grader(name: str) -> Grader | None:
    return Grader.objects.with_parts().filter(name=name).first()


def find_panel(name: str) -> Panel:
    panel: Panel | None = Panel.objects.filter(name=name).first()
    if panel is None:
        raise PlanError([f"panel: there is no panel {name}"])
    return panel


def _find_rubric(reference: str) -> Rubric:
    rubric: Rubric | None = Rubric.objects.named(reference).exclude(kind=Rubric.Kind.WRITER).first()
    if rubric is None:
        raise PlanError([f"rubric: there is no rubric {reference}{Rubric.objects.suggest_version(reference)}"])
    return rubric


def _find_texts(reference: str) -> TextSet:
    text_set: TextSet | None = TextSet.objects.named(reference).select_related("dataset").first()
    if text_set is None:
        raise PlanError([f"texts: there are no item rubrics {reference}{TextSet.objects.suggest_version(reference)}"])
    return text_set


def save_graders(graders: Sequence[Grader], by: Actor) -> list[Grader]:
    """Save the new graders with their author, and return all of them."""
    for grader in graders:
        if grader.pk is None:
            grader.created_by = by if isinstance(by, User) else None
            grader.save()
    return list(graders)
