"""The site's models as candidates of a draw, and the lines of a finished draw."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from runs_app.experiment_files.model_draw import Candidate, Draw
from runs_app.grading_interface import grading
from runs_app.models import Experiment


@dataclass(frozen=True)
class DrawnModel:
    """One candidate of a draw, for a page."""

    stratum: str
    size: int
    candidate: Candidate
    is_drawn: bool
    is_used: bool


@dataclass(frozen=True)
class DrawLines:
    """A draw compared with the models that the design has now."""

    of: str
    draw: Draw
    at: datetime
    lines: list[DrawnModel]
    added: list[str]
    left_out: list[str]


def compare_draw(of: str, made: Draw, used: Collection[str]) -> DrawLines:
    """Return the lines of a draw. `used` names the design's current models, which may be edited after the draw."""
    lines = [
        DrawnModel(stratum.name, len(stratum.candidates), one, one.name in made.drawn, one.name in used)
        for stratum in made.strata
        for one in stratum.candidates
    ]
    added, left_out = sorted(set(used) - set(made.drawn)), sorted(set(made.drawn) - set(used))
    return DrawLines(of, made, datetime.fromisoformat(made.at), lines, added, left_out)


def compare_stored_draws(experiment: Experiment, models: Iterable[str]) -> list[DrawLines]:
    """Return the draws stored in the experiment: of its models (now `models`), then of its judges, by name."""
    pinned = experiment.draws
    found = [compare_draw("", Draw.model_validate(pinned["models"]), set(models))] if "models" in pinned else []
    judges = pinned.get("judges", {})
    known = (
        {*experiment.graders, *(one["grader"] for one in grading().list_judges_in_use(experiment))} if judges else set()
    )
    for name, content in judges.items():
        made = Draw.model_validate(content)
        used = {one.name for one in made.candidates if judge_name(name, one.name) in known}
        found.append(compare_draw(name, made, used))
    return found


def judge_name(grader: str, model: str) -> str:
    """Return the name of the grader that this drawn model gets."""
    return f"{grader}-{model}"
