"""The comparison of two waves of one experiment as tables, and the waves that other numbers pool.

A comparison has the items' scores in both waves, and the outcomes of the trials.
It has a row for each condition and measure. The test is that of two conditions over common items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from django.core.cache import cache

from grading_app.results.cached_aggregates import fingerprint_results, has_many_answers
from grading_app.results.frames import CACHE_SECONDS, Outcomes, load_condition_labels, load_outcomes, sum_outcomes
from grading_app.results.scores import Measure, estimate_pair, list_measures, load_scores, make_scope_parameters
from grading_app.results.statistic_format import format_mean
from grading_app.results.table import Kind, ResultColumn, ResultTable, Row
from grading_app.statistics.condition_pairs import compare_conditions
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.paired import PairedChange, describe_methods, holm
from runs_app.models import Answer, Experiment, Trial, Wave
from runs_app.planning.manifests import ServedModels

LEVEL = 0.05
A, B = 0, 1
ALL_CONDITIONS = "all conditions"


@dataclass(frozen=True, slots=True)
class WaveChange:
    """The change of one measure in one condition (None: in all), over the items with a score in both waves.

    unpaired: the number of items without a score in one of the waves. unread_a, unread_b: answers without a score.
    adjusted: p after Holm's correction, over the lines of single conditions or over the lines of all conditions.
    only_in: A or B if the measure has scores in this wave only. judge_has_changed: other models or providers served
    the judge in wave b than in wave a, so a difference of its scores shows no drift of the model.
    """

    measure: Measure
    condition: str | None
    change: PairedChange | None
    mean_a: float | None
    mean_b: float | None
    unpaired: int
    unread_a: int
    unread_b: int
    adjusted: float | None = None
    only_in: int | None = None
    judge_has_changed: bool = False

    @property
    def has_drifted(self) -> bool:
        return self.adjusted is not None and self.adjusted < LEVEL and not self.judge_has_changed

    @property
    def text(self) -> str:
        first, last = (format_mean(mean, self.measure.is_share) for mean in (self.mean_a, self.mean_b))
        return f"{self.measure.label}, {self.condition or 'all conditions'}, {first} to {last}"


class ServedDifference(NamedTuple):
    """The differences of two waves in their served models and providers."""

    models: bool = False
    providers: bool = False

    @classmethod
    def of(cls, a: ServedModels, b: ServedModels) -> ServedDifference:
        """Compare two waves. A wave without a served model or provider counts as unchanged."""
        pairs = ((a.models, b.models), (a.providers, b.providers))
        return cls(*(bool(first and second and first != second) for first, second in pairs))


@dataclass(frozen=True, slots=True)
class WaveOutcome:
    """The outcomes of the trials of one condition (None: of all) in wave a or b."""

    condition: str | None
    is_b: bool
    counts: Outcomes
    served: ServedModels
    differs: ServedDifference


@dataclass(frozen=True, slots=True)
class WaveComparison:
    lines: list[WaveChange]
    outcomes: list[WaveOutcome]

    @property
    def has_people(self) -> bool:
        return any(line.measure.is_of_people for line in self.lines)

    @property
    def has_judges(self) -> bool:
        return any(line.measure.kind in ("judge", "panel") for line in self.lines)

    @property
    def methods(self) -> str:
        """A sentence that names the methods of the intervals."""
        return describe_methods(line.change for line in self.lines if line.change)

    @property
    def drifted(self) -> list[WaveChange]:
        return [line for line in self.lines if line.has_drifted]

    @property
    def comparable(self) -> list[WaveChange]:
        """The lines with a test that can show drift of a model."""
        return [line for line in self.lines if line.adjusted is not None and not line.judge_has_changed]

    @property
    def changed_judges(self) -> list[str]:
        """The labels of the judges and panels that other models or providers served in wave b."""
        return list(dict.fromkeys(line.measure.label for line in self.lines if line.judge_has_changed))

    @property
    def replaced_judges(self) -> tuple[list[str], list[str]] | None:
        """The labels of the judges that graded wave a alone and wave b alone; None unless there are both."""
        judged = [line for line in self.lines if line.measure.kind in ("judge", "panel")]
        of_a, of_b = (list(dict.fromkeys(row.measure.label for row in judged if row.only_in == one)) for one in (A, B))
        return (of_a, of_b) if of_a and of_b else None

    @property
    def changed_conditions(self) -> list[str]:
        """The labels of the conditions that other models or providers served in wave b."""
        return [row.condition for row in self.outcomes if row.is_b and any(row.differs) and row.condition]


def compare_waves(experiment: Experiment, a: Wave, b: Wave) -> WaveComparison:
    """Compare wave b with wave a, in at most six passes over the rows of both waves in the database."""
    return WaveComparison(compare_scores(experiment, a, b), list_wave_outcomes(experiment, a, b))


def compare_scores(experiment: Experiment, a: Wave, b: Wave) -> list[WaveChange]:
    """Return lines by measure: all conditions together if there are several, then each in the order of the design."""
    labels, changed_judges = load_condition_labels(experiment), find_changed_judges(experiment, a, b)
    lines: list[WaveChange] = []
    for measure in list_measures(experiment):
        waves = [load_scores(experiment, measure, wave) for wave in (a, b)]
        has_scores = [bool(one.n.any()) for one in waves]
        settled = measure.settle(replace(waves[0], is_binary=waves[0].is_binary and waves[1].is_binary))
        asked = set().union(*({*one.conditions[(one.n + one.missing).any(axis=0)].tolist()} for one in waves))
        conditions = [key for key in labels if key in asked]
        groups = [conditions, *([key] for key in conditions)] if len(conditions) > 1 else [conditions]
        for keys in groups if conditions else ():
            pair, n_asked = _pair_waves(waves, keys)
            found, (side_a, side_b) = compare_conditions(pair, A, B, settled.bounds), estimate_pair(pair, settled, A, B)
            lines.append(
                WaveChange(
                    settled,
                    labels[keys[0]] if len(keys) == 1 else None,
                    found.change if found else None,
                    side_a.mean,
                    side_b.mean,
                    unpaired=n_asked - (found.items if found else 0),
                    unread_a=int(pair.missing[:, A].sum()),
                    unread_b=int(pair.missing[:, B].sum()),
                    only_in=has_scores.index(True) if sum(has_scores) == 1 else None,
                    judge_has_changed=measure.grade_condition in changed_judges,
                )
            )
    # Single conditions and sums over conditions are two families of tests, because a sum repeats its parts.
    adjusted = list(lines)
    for is_sum in (True, False):
        indices = [k for k, line in enumerate(lines) if (line.condition is None) == is_sum and line.change]
        tested = [(k, p) for k in indices if (change := lines[k].change) and (p := change.p) is not None]
        for (k, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
            adjusted[k] = replace(lines[k], adjusted=p)
    return adjusted


def _pair_waves(waves: Sequence[ItemScores], conditions: Sequence[int]) -> tuple[ItemScores, int]:
    """Return the scores of these conditions in two waves, as two columns, and the number of items that they were asked.

    Over several conditions, an item's means are over the conditions that have scores in both waves, so that their
    difference is the mean of the differences. An item without such a condition has no score.
    """
    items = np.union1d(waves[0].items, waves[1].items)
    shape = (2, len(items), len(conditions))
    n, missing, mean = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, np.nan)
    for wave, one in enumerate(waves):
        rows = np.searchsorted(items, one.items)
        for column, key in enumerate(conditions):
            if key in one.conditions:
                at = one.find_column(key)
                n[wave, rows, column], missing[wave, rows, column] = one.n[:, at], one.missing[:, at]
                mean[wave, rows, column] = one.mean[:, at]
    n_asked = int((n + missing).any(axis=(0, 2)).sum())
    if len(conditions) > 1:
        has_both = (n > 0).all(axis=0)
        n, n_both = np.where(has_both, n, 0), np.maximum(has_both.sum(axis=1), 1)
        mean = (np.where(has_both, mean, 0.0).sum(axis=2) / n_both)[:, :, None]
    n, missing = n.sum(axis=2), missing.sum(axis=2)
    means = np.where(n > 0, mean[:, :, 0], np.nan)
    is_binary = waves[0].is_binary and waves[1].is_binary
    pair = ItemScores(items, np.array([A, B]), n.T, missing.T, means.T, np.zeros_like(means.T), is_binary=is_binary)
    return pair, n_asked


def find_changed_judges(experiment: Experiment, a: Wave, b: Wave) -> set[int]:
    """Return the grade conditions of judges that other models or providers served in wave b, and of their panels."""
    verdicts = "judge_condition__runs__trials"
    rows = experiment.grade_conditions.order_by().filter(**{
        "judge_condition__runs__wave__in": (a, b), f"{verdicts}__status": Trial.Status.DONE,
    }).values_list(
        "pk", "judge_condition__runs__wave", f"{verdicts}__served_model", f"{verdicts}__served_provider"
    ).distinct()  # fmt: skip
    pairs: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for judge, wave, model, provider in rows:
        pairs[judge, wave].append((model, provider))
    served = defaultdict(ServedModels, {key: ServedModels.from_pairs(found) for key, found in pairs.items()})
    changed = {judge for judge, _ in pairs if any(ServedDifference.of(served[judge, a.pk], served[judge, b.pk]))}
    panels = experiment.grade_conditions.filter(panel__graders__grade_conditions__in=changed)
    return changed | set(panels.values_list("pk", flat=True)) if changed else changed


def list_wave_outcomes(experiment: Experiment, a: Wave, b: Wave) -> list[WaveOutcome]:
    """Return two rows for each condition, wave a first.

    If there are several conditions, two rows for all conditions come before them.
    """
    answers = Answer.objects.filter(experiment=experiment, wave__in=(a, b), status="done")
    rows_served: Any = answers.values_list("condition", "wave", "served_model", "served_provider").distinct()
    pairs_by_run: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for condition, wave, model, provider in rows_served:
        pairs_by_run[condition, wave].append((model, provider))
    served = defaultdict(ServedModels, {key: ServedModels.from_pairs(pairs) for key, pairs in pairs_by_run.items()})
    labels = load_condition_labels(experiment)
    outcomes = [
        {row.condition: row for row in load_outcomes(make_scope_parameters(experiment, wave))} for wave in (a, b)
    ]
    rows = []
    for condition, label in labels.items():
        served_by_wave = [served[condition, wave.pk] for wave in (a, b)]
        for counts, models, is_b in zip(outcomes, served_by_wave, (False, True), strict=True):
            if condition in counts:
                rows.append(WaveOutcome(label, is_b, counts[condition], models, ServedDifference.of(*served_by_wave)))
    if len({row.condition for row in rows}) > 1:
        sums = [sum_outcomes(counts.values()) for counts in outcomes]
        none_served = ServedModels(), ServedDifference()
        rows[:0] = [WaveOutcome(None, is_b, one, *none_served) for one, is_b in zip(sums, (False, True), strict=True)]
    return rows


def get_wave_comparison(experiment: Experiment, a: Wave, b: Wave) -> WaveComparison:
    """Return the comparison of wave b with wave a at the experiment's current state."""
    key = f"waves-2:{fingerprint_results(experiment, None)}:{a.pk}:{b.pk}"
    comparison: WaveComparison | None = cache.get_or_set(key, lambda: compare_waves(experiment, a, b), CACHE_SECONDS)
    return comparison or compare_waves(experiment, a, b)


@dataclass(frozen=True, slots=True)
class PooledWaves:
    """The waves of an experiment that numbers without a chosen wave pool.

    drifted: the scores that differ between the first and the last wave after Holm's correction; None if the experiment
    is too large to test them during a request. changed_judges: the labels of judges that changed between these waves.
    """

    waves: list[Wave]
    drifted: list[WaveChange] | None
    changed_judges: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """Say what is pooled, and whether the first and the last wave differ."""
        names = ", ".join(map(str, self.waves))
        pooled = f"These numbers pool {len(self.waves)} waves: {names}."
        first, last = self.waves[0], self.waves[-1]
        if self.drifted is None:
            return [pooled]
        if self.changed_judges:
            judges = "; ".join(self.changed_judges)
            pooled = f"{pooled} The judge changed between {first} and {last}, so its scores show no drift: {judges}."
        if not self.drifted:
            other = "other " if self.changed_judges else ""
            return [pooled, f"No {other}score differs significantly between {first} and {last}."]
        changes = "; ".join(line.text for line in self.drifted[:3])
        more = f"; and {len(self.drifted) - 3} more" if len(self.drifted) > 3 else ""
        return [pooled, f"Scores changed significantly from {first} to {last}: {changes}{more}."]


def find_pooled_waves(experiment: Experiment, wave: Wave | None, *, in_worker: bool = False) -> PooledWaves | None:
    """Return the waves that numbers of this wave (None: of all) pool; None if they pool fewer than two.

    in_worker: compare the waves however many answers they have.
    """
    waves = list(experiment.waves.answered())
    if wave is not None or len(waves) < 2:
        return None
    if not in_worker and has_many_answers(experiment, None):
        return PooledWaves(waves, None)
    comparison = get_wave_comparison(experiment, waves[0], waves[-1])
    return PooledWaves(waves, comparison.drifted, comparison.changed_judges)


def make_wave_score_tables(lines: Sequence[WaveChange], a: Wave, b: Wave) -> list[ResultTable]:
    """Return a table of the measures that are shares and one of the others: a row for each measure and condition.

    Measures without an item scored in both waves have rows only if another measure has one.
    """
    if not any(line.change for line in lines):
        return []
    shares = [line for line in lines if line.measure.is_share]
    others = [line for line in lines if not line.measure.is_share]
    tables = []
    for name, title, group in (("shares", "Shares", shares), ("means", "Means", others)):
        kinds: tuple[Kind, ...] = (
            ("share", "signed_share", "points", "points_interval")
            if name == "shares"
            else ("number", "signed", "number", "interval")
        )
        columns = [
            ResultColumn("measure", "Measure"),
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Items", "count"),
            ResultColumn("unpaired", "Unpaired items", "count"),
            ResultColumn("mean_a", str(a), kinds[0]),
            ResultColumn("mean_b", str(b), kinds[0]),
            ResultColumn("difference", "Difference", kinds[1]),
            ResultColumn("se", "SE by item", kinds[2], places=3),
            ResultColumn("interval", "95 % interval", kinds[3]),
            ResultColumn("reason", "No interval"),
            ResultColumn("p", "p", "p"),
            ResultColumn("test", "Test"),
            ResultColumn("adjusted", "p, Holm", "p"),
            ResultColumn("unread_a", f"No score, {a}", "count"),
            ResultColumn("unread_b", f"No score, {b}", "count"),
            ResultColumn("drift", "Drift"),
        ]
        rows: list[Row] = [
            {
                "measure": line.measure.label,
                "condition": line.condition or ALL_CONDITIONS,
                "items": line.change.n if line.change else 0,
                "unpaired": line.unpaired,
                "mean_a": line.mean_a,
                "mean_b": line.mean_b,
                "adjusted": line.adjusted,
                "unread_a": line.unread_a,
                "unread_b": line.unread_b,
                "drift": _describe_drift(line),
                **(
                    {
                        "difference": change.mean,
                        "se": change.se,
                        "interval": None if change.reason or change.low is None else (change.low, change.high),
                        "reason": change.reason or None,
                        "p": change.p,
                        "test": change.test_text or None,
                    }
                    if (change := line.change)
                    else {}
                ),
            }
            for line in group
        ]
        left_out = {column for column in ("unpaired", "reason") if not any(row.get(column) for row in rows)}
        if not any(line.unread_a or line.unread_b for line in group):
            left_out |= {"unread_a", "unread_b"}
        if len({line.condition for line in lines}) == 1:
            left_out.add("condition")
        if rows:
            tables.append(ResultTable(name, title, [one for one in columns if one.name not in left_out], rows))
    return tables


def _describe_drift(line: WaveChange) -> str | None:
    if line.adjusted is None:
        return None
    if line.judge_has_changed:
        return "judge changed"
    return "drift" if line.has_drifted else "none shown"


def make_wave_outcome_table(outcomes: Sequence[WaveOutcome], a: Wave, b: Wave) -> ResultTable:
    """Return the outcomes of the trials: a row for each condition and wave. Shares are of the done trials."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("wave", "Wave"),
        ResultColumn("done", "Done", "count_of"),
        ResultColumn("failed", "Failed", "count"),
        ResultColumn("unread", "No rating found", "share"),
        ResultColumn("empty", "Empty", "share"),
        ResultColumn("truncated", "Truncated", "share"),
        ResultColumn("refused", "Refused", "share"),
        ResultColumn("served", "Served as"),
        ResultColumn("provider", "By"),
    ]
    shown = {
        "unread": any(row.counts.unread for row in outcomes),
        "served": any(row.served.models for row in outcomes),
        "provider": any(row.served.providers for row in outcomes),
    }
    rows: list[Row] = [
        {
            "condition": row.condition or ALL_CONDITIONS,
            "wave": str(b if row.is_b else a),
            "done": (row.counts.done, row.counts.trials),
            "failed": row.counts.failed,
            **{
                name: getattr(row.counts, name) / row.counts.done if row.counts.done else None
                for name in ("unread", "empty", "truncated", "refused")
            },
            "served": _describe_served(row.served.models, row.differs.models),
            "provider": _describe_served(row.served.providers, row.differs.providers),
        }
        for row in outcomes
    ]
    return ResultTable("outcomes", "Outcomes", [one for one in columns if shown.get(one.name, True)], rows)


def _describe_served(names: Sequence[str], has_changed: bool) -> str | None:
    return f"{', '.join(names)} (changed)" if has_changed else ", ".join(names) or None
