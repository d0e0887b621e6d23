"""Judges with drawn models: one judge per model of the draw. The experiment stores the draw."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db import transaction

from evalsite.lib.history import Actor, record_changes
from grading_app.judging import grader_lookup
from grading_app.judging.default_sampler import get_or_create_default_sampler
from grading_app.models import Grader, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.models import Experiment, LanguageModel
from runs_app.planning.drawn_models import build_judge_name
from runs_app.planning.work import PlanError

GRADER_FIELDS = ("language_model", "rubric", "sampler", "text_set", "on_empty", "longest_answer")


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
    existing: Grader | None = grader_lookup.find_grader(grader.name)
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
    return grader_lookup.save_graders(graders, by)
