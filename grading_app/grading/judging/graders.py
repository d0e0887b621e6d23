"""Graders and panels: their lookup by name or rubric for files and commands, and judges with randomly drawn models.

A draw gives one judge per drawn model. The experiment stores the draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from evalsite.lib.history import Actor, record_changes
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.text.names import NamedChoice, UnknownNameError, find_named
from grading_app.models import Grader, Panel, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.experiment_files.row_builder import SITE, build_sampler
from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.models import Experiment, LanguageModel, Sampler, TextSet
from runs_app.planning.drawn_models import build_judge_name
from runs_app.planning.work import PlanError

GRADER_FIELDS = ("language_model", "rubric", "sampler", "text_set", "on_empty", "longest_answer")


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


def get_or_create_default_sampler() -> Sampler:
    """Return the newest approved sampler with the default name and settings. Create it if none exists."""
    sampler = build_sampler(JUDGING_SAMPLER)
    same = Sampler.objects.filter(name=sampler.name, content_hash=hash_content(sampler.content))
    existing: Sampler | None = same.filter(status=Sampler.Status.APPROVED).order_by("-version").first()
    if existing is not None:
        return existing
    sampler.version = Sampler.get_next_version(sampler.name)
    sampler.save()
    sampler.approve(by=SITE, reason="The default of judges")
    return sampler


def draw_graders(draw: Draw, *, name: str, rubric: Rubric) -> list[Grader]:
    """Return the graders named `NAME-model`, in the order of the draw. An existing equal grader is reused.

    New graders are not saved. Raise PlanError if a model of the draw no longer exists.
    Raise it also if a grader with one of these names has other content.
    """
    models = {
        model.name: model for model in LanguageModel.objects.filter(name__in=draw.drawn).select_related("endpoint")
    }
    if missing := [model for model in draw.drawn if model not in models]:
        raise PlanError([f"draw: model {model} no longer exists; draw again" for model in missing])
    sampler = get_or_create_default_sampler()
    candidates = [
        Grader(name=build_judge_name(name, model), language_model=models[model], rubric=rubric, sampler=sampler)
        for model in draw.drawn
    ]
    graders = [reuse_saved_grader(grader) for grader in candidates]
    for grader in graders:
        try:
            grader.clean_fields(exclude=["created_by"])
        except ValidationError as error:
            raise PlanError([f"grader {grader.name}: {' '.join(error.messages)}"]) from None
    return graders


def reuse_saved_grader(grader: Grader) -> Grader:
    """Return the grader with this name, or this grader if the name is new.

    Raise PlanError if the grader with this name has other content.
    """
    existing: Grader | None = find_grader(grader.name)
    if existing is not None and any(getattr(existing, field) != getattr(grader, field) for field in GRADER_FIELDS):
        raise PlanError([f"another grader {grader.name} exists; choose a different name"])
    return existing or grader


@transaction.atomic
def pin_judges(experiment: Experiment, draw: Draw, graders: Sequence[Grader], *, name: str, by: Actor) -> list[Grader]:
    """Save these judges, and store their draw in the experiment.

    Raise PlanError if another draw with this name exists.
    """
    locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
    judges = locked.draws.get("judges", {})
    if judges.get(name, draw.content) != draw.content:
        raise PlanError([f"judges {name} were already drawn for {experiment}; choose a different name"])
    if name not in judges:
        locked.draws = {**locked.draws, "judges": {**judges, name: draw.content}}
        locked.save(update_fields=["draws"])
        summary = f"{name}: {', '.join(draw.drawn)}, with seed {draw.seed}"
        record_changes([(locked, "", summary)], by=by, reason="", aspect="judges drawn")
    return save_graders(graders, by)
