"""The choices of the explorer, and the stored counts of an experiment with these choices.

A query is a view of one task, for one or two conditions, over one or two parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms

from evalsite.lib.text.names import UnknownNameError
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.frames import load_condition_labels
from grading_app.results.parametric.point_counts import POINT_COUNTS, PointCounts, PointQuery, list_graders
from grading_app.results.parametric.surface import (
    Axis,
    Estimate,
    SurfaceGrid,
    build_grid,
    choose_axes,
    estimate_cells,
    list_axes,
)
from runs_app.models import Experiment, Wave

VIEWS = {
    "overview": "All tasks",
    "map": "Heat map",
    "curves": "Curves",
    "models": "Side by side",
    "difference": "Difference",
    "tasks": "Tasks",
    "clusters": "Clusters",
    "compression": "Compression",
    "tokens": "Tokens",
    "prompts": "Prompts",
}
VIEWS_WITHOUT_CHOICES = frozenset(
    {"overview", "tasks", "prompts"}
)  # These views have no choice of parameters and conditions.
FORMER_VIEWS = {"hazard": "tokens", "spectrum": "prompts"}  # Names of views in older addresses.
FIXED_PREFIX = "at-"
NO_AXIS = "-"


@dataclass(frozen=True)
class ExplorerQuery:
    """The valid choices of the explorer. labels: labels of the conditions with answers, in the order of the design."""

    experiment: Experiment
    grader: int
    wave: Wave | None
    counts: PointCounts
    labels: Mapping[int, str]
    view: str
    task: str
    condition: int
    against: int
    x: Axis
    y: Axis | None
    fixed: Mapping[str, str]

    @cached_property
    def grid(self) -> SurfaceGrid:
        return build_grid(self.counts, self.task, self.x, self.y, self.fixed)

    @cached_property
    def line(self) -> SurfaceGrid:
        """Return the points along x alone."""
        return build_grid(self.counts, self.task, self.x, None, self.fixed)

    def estimate_cells(self, condition: int) -> dict[tuple[str, str], Estimate]:
        return estimate_cells(self.counts, self.grid, condition)

    @cached_property
    def ordered_conditions(self) -> list[int]:
        """The conditions: the chosen condition, the compared condition, then the others."""
        first = dict.fromkeys((self.condition, self.against))
        return [*first, *(key for key in self.labels if key not in first)]


class ExplorerForm(forms.Form):
    """The choices of the explorer, as the address holds them. An unknown value falls back to the default.

    The form is never bound: the choices are read from `data` one by one. notices: a sentence on each unknown value of a
    choice that does not depend on other choices. A parameter of another task is no error, because the form submits it
    when the task changes.
    """

    use_required_attribute = False

    view = forms.ChoiceField(required=False, choices=list(VIEWS.items()), widget=forms.HiddenInput())
    task = forms.ChoiceField(label="Task")
    condition = forms.ChoiceField(label="Condition")
    against = forms.ChoiceField(label="Compared with")
    x = forms.ChoiceField(label="Across")
    y = forms.ChoiceField(label="Down")
    rule = forms.ChoiceField(label="Rule")
    wave = forms.ChoiceField(label="Wave")

    def __init__(
        self,
        data: Any,
        counts: PointCounts,
        labels: Mapping[int, str],
        *,
        rules: Mapping[int, str],
        waves: Sequence[Wave],
    ) -> None:
        super().__init__()
        self.submitted, self.counts = data, counts
        answered = {key for key, cells in counts.by_condition.items() if any(cell.done for cell in cells)}
        self.labels = {key: label for key, label in labels.items() if key in answered}
        self.chosen: dict[str, str] = {}
        self.notices: list[str] = []
        has_choices = any(data.get(name) for name in ("task", "condition", "against", "x", "y", "wave", "table"))
        self._choose("view", list(VIEWS.items()), "map" if has_choices else "overview")
        self._choose("task", [(task, task) for task in counts.task_names])
        self._choose("condition", [(str(key), label) for key, label in self.labels.items()])
        others = [(str(key), label) for key, label in self.labels.items() if str(key) != self.chosen["condition"]]
        self._choose("against", others)
        self._choose("rule", [(str(key), label) for key, label in rules.items()])
        self._choose("wave", [("", "All waves"), *((str(wave.number), str(wave)) for wave in waves)])
        self.axes = list_axes(counts, self.chosen["task"])
        first, second = choose_axes(self.axes)
        varying = [(axis.name, axis.name) for axis in self.axes if axis.varies] or [
            (axis.name, axis.name) for axis in self.axes
        ]
        self._choose("x", varying, first.name if first else "")
        x = self.chosen["x"]
        y_choices = [choice for choice in varying if choice[0] != x]
        default = next((axis.name for axis in (second, first) if axis and axis.varies and axis.name != x), NO_AXIS)
        self._choose("y", [*y_choices, (NO_AXIS, "nothing")], default)
        for axis in self.axes:
            if axis.varies and axis.name not in (x, self.chosen["y"]):
                name = FIXED_PREFIX + axis.name
                self.fields[name] = forms.ChoiceField(label=axis.name)
                self._choose(name, [("", "average"), *((label, label) for label in axis.labels)])
        for name, is_hidden in (("rule", len(rules) < 2), ("wave", len(waves) < 2), ("against", not others)):
            if is_hidden:
                del self.fields[name]

    def _choose(self, name: str, choices: list[tuple[str, str]], default: str = "") -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - for the type
        field.choices = choices
        values = [value for value, _ in choices]
        submitted = self.submitted.get(name, "")
        if name == "view":
            submitted = FORMER_VIEWS.get(submitted, submitted)
        fallback = default if default in values else values[0] if values else ""
        self.chosen[name] = self.initial[name] = submitted if submitted in values else fallback
        if name in ("view", "task", "condition", "rule", "wave") and submitted and submitted not in values and choices:
            shown = dict(choices)[fallback]
            self.notices.append(f"There is no {name} {submitted[:80]!r} here. The page shows {shown}.")

    @property
    def shown_fields(self) -> list[Any]:
        """The visible fields that this view uses."""
        view = self.chosen["view"]
        hidden = set()
        if view not in ("difference", "curves"):
            hidden.add("against")
        if view in ("models", "clusters", *VIEWS_WITHOUT_CHOICES):
            hidden.add("condition")
        if view in VIEWS_WITHOUT_CHOICES | {"compression", "tokens", "clusters"}:
            hidden |= {"x", "y", *(name for name in self.fields if name.startswith(FIXED_PREFIX))}
        if view == "curves":
            hidden.add("y")
        if view in ("overview", "tasks", "compression"):
            hidden.add("task")
        return [field for field in self.visible_fields() if field.name not in hidden]

    @property
    def parameters(self) -> dict[str, str]:
        """The choices of this page as parameters of an address."""
        names = ("task", "condition", "against", "x", "y", "rule", "wave")
        return {
            name: value
            for name, value in self.chosen.items()
            if value
            and (name in names or name.startswith(FIXED_PREFIX))
            and name in self.fields
            and name in self.submitted
        }

    def read_query(self, experiment: Experiment, grader: int, wave: Wave | None) -> ExplorerQuery | None:
        """Return the query, or None without answers or parameters."""
        axes = {axis.name: axis for axis in self.axes}
        if not self.labels or self.chosen["x"] not in axes:
            return None
        condition = int(self.chosen["condition"])
        fixed = {
            name.removeprefix(FIXED_PREFIX): value
            for name, value in self.chosen.items()
            if name.startswith(FIXED_PREFIX) and value
        }
        return ExplorerQuery(
            experiment, grader, wave, self.counts, self.labels, self.chosen["view"], self.chosen["task"], condition,
            int(self.chosen["against"] or condition), axes[self.chosen["x"]], axes.get(self.chosen["y"]), fixed,
        )  # fmt: skip


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
