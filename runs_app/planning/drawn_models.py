"""Drawn models: a draw compared with the models that a design has now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from runs_app.experiment_files.model_draw import Candidate, Draw
from runs_app.models import Experiment


@dataclass(frozen=True)
class DrawnModel:
    """A candidate of a draw, for a page."""

    stratum: str
    size: int
    candidate: Candidate
    is_drawn: bool
    is_used: bool


@dataclass(frozen=True)
class DrawLines:
    """A draw and the design's current models: `added` were not drawn, `left_out` were drawn but are not used."""

    of: str
    draw: Draw
    at: datetime
    lines: list[DrawnModel]
    added: list[str]
    left_out: list[str]


def compare_draw(of: str, draw: Draw, used: Collection[str]) -> DrawLines:
    """Compare a draw with the names of the design's current models, which users may edit after the draw."""
    lines = [
        DrawnModel(
            stratum.name, len(stratum.candidates), candidate, candidate.name in draw.drawn, candidate.name in used
        )
        for stratum in draw.strata
        for candidate in stratum.candidates
    ]
    added, left_out = sorted(set(used) - set(draw.drawn)), sorted(set(draw.drawn) - set(used))
    return DrawLines(of, draw, datetime.fromisoformat(draw.at), lines, added, left_out)


def compare_stored_draws(
    experiment: Experiment, models: Iterable[str], judge_names: Collection[str]
) -> list[DrawLines]:
    """Compare the draws stored in the experiment: that of its models (now `models`), then those of its judges."""
    stored = experiment.draws
    compared = [compare_draw("", Draw.model_validate(stored["models"]), set(models))] if "models" in stored else []
    for name, content in stored.get("judges", {}).items():
        draw = Draw.model_validate(content)
        used = {
            candidate.name for candidate in draw.candidates if build_judge_name(name, candidate.name) in judge_names
        }
        compared.append(compare_draw(name, draw, used))
    return compared


def build_judge_name(grader: str, model: str) -> str:
    """Return the name of the judge for a drawn model."""
    return f"{grader}-{model}"
