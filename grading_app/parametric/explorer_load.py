"""The stored counts of an experiment with the choices of the explorer, for pages, figures and the command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from evalsite.lib.text.names import UnknownNameError
from grading_app.parametric.explorer_query import ExplorerForm, ExplorerQuery
from grading_app.parametric.point_counts import POINT_COUNTS, PointCounts, PointQuery, list_graders
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.frames import load_condition_labels
from runs_app.models import Experiment


@dataclass(frozen=True, slots=True)
class ExplorerState:
    """The form and query of an address. cached: the state of the counts, or None if no rule graded answers."""

    form: ExplorerForm | None
    query: ExplorerQuery | None
    cached: Cached[PointCounts] | None
    rules: dict[int, str]


def load_explorer(experiment: Experiment, data: Mapping[str, str]) -> ExplorerState:
    """Read the stored counts and the choices of an address. An unknown choice falls back to its default."""
    rules = {rule.pk: rule.label for rule in list_graders([experiment])[experiment.pk]}
    if not rules:
        return ExplorerState(None, None, None, rules)
    requested = data.get("rule", "")
    grader = int(requested) if requested.isdecimal() and int(requested) in rules else next(iter(rules))
    waves = list(experiment.waves.all())
    wave, choices = None, dict(data.items())
    if name := data.get("wave", ""):
        with suppress(UnknownNameError):
            wave = experiment.find_wave(name)
            choices["wave"] = str(wave.number)
    cached = get_aggregate(POINT_COUNTS, experiment.pk, PointQuery(experiment, grader, wave))
    if cached.value is None:
        return ExplorerState(None, None, cached, rules)
    form = ExplorerForm(choices, cached.value, load_condition_labels(experiment, wave), rules=rules, waves=waves)
    return ExplorerState(form, form.read_query(experiment, grader, wave), cached, rules)
