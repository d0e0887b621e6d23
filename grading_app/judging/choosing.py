"""Which graders are meant: by name, by rubric, or those of the design."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from datasets_app.models.history import Actor
from grading_app.models import Grader, Panel, Rubric
from runs_app.designs.planning import PlanError
from runs_app.models import Experiment

LONGEST_NAME = 80


def chosen(names: Sequence[str], rubric: str | None, *, by: Actor) -> list[Grader]:
    """The graders of these names; of a rubric's, alone; or with both, those models by that rubric, made if new.

    PlanError names what there is not.
    """
    if rubric is None:
        return named(names)
    by_rubric = _rubric(rubric)
    if names:
        return [_with(grader, by_rubric, by) for grader in named(names)]
    found = list(_graders().filter(rubric=by_rubric, archived_at=None))
    if not found:
        raise PlanError([f"rubric: no grader has {by_rubric}; name one as well, to judge by this rubric"])
    return found


def named(names: Sequence[str]) -> list[Grader]:
    found = {grader.name: grader for grader in _graders().filter(name__in=names)}
    if missing := [name for name in names if name not in found]:
        known = ", ".join(_graders().filter(archived_at=None).values_list("name", flat=True)) or "none yet"
        raise PlanError([f"grader: there is no grader {name}; there are {known}" for name in missing])
    return [found[name] for name in dict.fromkeys(names)]


def of_design(experiment: Experiment) -> list[Grader]:
    """Those that judge by themselves; one that was deleted since is left out."""
    found = {grader.name: grader for grader in _graders().filter(name__in=experiment.graders)}
    return [found[name] for name in experiment.graders if name in found]


def panel(name: str) -> Panel:
    found: Panel | None = Panel.objects.filter(name=name).first()
    if found is None:
        raise PlanError([f"panel: there is no panel {name}"])
    return found


def _graders() -> QuerySet[Grader]:
    return Grader.objects.select_related("language_model__endpoint", "rubric", "sampler", "text_set__dataset")


def _rubric(reference: str) -> Rubric:
    found: Rubric | None = Rubric.objects.named(reference).exclude(kind=Rubric.Kind.WRITER).first()
    if found is None:
        raise PlanError([f"rubric: there is no rubric {reference}"])
    return found


def _with(grader: Grader, rubric: Rubric, by: Actor) -> Grader:
    """The same judge by another rubric."""
    if grader.rubric_id == rubric.pk:
        return grader
    same = {name: getattr(grader, name) for name in ("language_model", "sampler", "text_set", "on_empty")}
    same["longest_answer"] = grader.longest_answer
    known = _graders().filter(rubric=rubric, archived_at=None, **same).first()
    if known is not None:
        return known
    ending = f"-{rubric.name}-v{rubric.version}"
    author = by if not isinstance(by, str) and by is not None and by.is_authenticated else None
    return Grader.objects.create(
        name=grader.name[: LONGEST_NAME - len(ending)] + ending[-LONGEST_NAME:],
        rubric=rubric,
        created_by=author,
        **same,
    )
