"""Judges with drawn models: one judge per model of the draw. The experiment stores the draw."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db import transaction

from datasets_app.models.history import Actor, record_changes
from grading_app.judging import grader_lookup
from grading_app.judging.default_sampler import get_default_sampler
from grading_app.models import Grader, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.models import Experiment, LanguageModel
from runs_app.planning.drawn_models import judge_name
from runs_app.planning.work import PlanError

SAME = ("language_model", "rubric", "sampler", "text_set", "on_empty", "longest_answer")


def draw_graders(made: Draw, *, name: str, rubric: Rubric) -> list[Grader]:
    """Return the graders named `NAME-model`, in the order of the draw. An existing equal grader is reused.

    New graders are not saved. Raise PlanError if a model of the draw no longer exists.
    Raise it also if a grader with one of the names has other content.
    """
    models = {one.name: one for one in LanguageModel.objects.filter(name__in=made.drawn).select_related("endpoint")}
    if missing := [model for model in made.drawn if model not in models]:
        raise PlanError([f"draw: the site has no model {model} any more; draw again" for model in missing])
    sampler = get_default_sampler()
    named = [
        Grader(name=judge_name(name, model), language_model=models[model], rubric=rubric, sampler=sampler)
        for model in made.drawn
    ]
    found = [reuse_saved_grader(grader) for grader in named]
    for grader in found:
        _require_plain_name(grader)
    return found


def _require_plain_name(grader: Grader) -> None:
    try:
        grader.clean_fields(exclude=["created_by"])
    except ValidationError as refused:
        raise PlanError([f"grader {grader.name}: {' '.join(refused.messages)}"]) from None


def reuse_saved_grader(grader: Grader) -> Grader:
    """Return the grader with this name, or this grader if the name is new.

    Raise PlanError if the grader with this name has other content.
    """
    existing: Grader | None = grader_lookup.find_grader(grader.name)
    if existing is not None and any(getattr(existing, field) != getattr(grader, field) for field in SAME):
        raise PlanError([f"grader {grader.name} is another one here; give this one another name"])
    return existing or grader


@transaction.atomic
def pin_judges(experiment: Experiment, made: Draw, graders: Sequence[Grader], *, name: str, by: Actor) -> list[Grader]:
    """Save these judges, and store their draw in the experiment.

    Raise PlanError if another draw with this name exists.
    """
    locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
    judges = locked.draws.get("judges", {})
    if judges.get(name, made.content) != made.content:
        raise PlanError([f"judges {name} were drawn for {experiment} before; give these another name"])
    if name not in judges:
        locked.draws = {**locked.draws, "judges": {**judges, name: made.content}}
        locked.save(update_fields=["draws"])
        drawn = f"{name}: {', '.join(made.drawn)}, by the seed {made.seed}"
        record_changes([(locked, "", drawn)], by=by, reason="", what="judges drawn")
    return grader_lookup.save_graders(graders, by)
