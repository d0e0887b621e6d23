"""Measures, their scores by item and condition, and the mean of a condition with its interval.

A measure is a dimension that models rated, or a grader (rule, judge, panel, people of a queue). For graded ratings it
is a grader on a dimension. A mean is a share if `Measure.settle` finds scores of 0 and 1 on a scale without other ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets_app.models import Item
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.names import NamedChoice, UnknownNameError, find_named
from grading_app.models import GradeCondition, RatingQueue
from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds, ScoreEstimate, estimate_mean, is_share_scale
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Dimension, Experiment, Wave
from runs_app.scorers.scorers import SCORERS

EXCLUSIONS = {
    "truncated": "NOT truncated",
    "retried": "attempts <= 1",
    "refused": "NOT refused",
    "reused": "NOT from_cache",
}
"""The kinds of answers that a reader may exclude, with the SQL condition on answers that keeps all others."""
IN_SCOPE = "experiment_id = %(experiment)s AND (%(wave)s::bigint IS NULL OR wave_id = %(wave)s)"
"""SQL on the views of answers and scores. Its parameters are those of `make_scope_parameters`."""
OF_MEASURE = """grader_kind = %(kind)s AND grader_id = %(grader)s
    AND (%(dimension)s::bigint IS NULL OR dimension_id = %(dimension)s)"""
ALL_ZERO_OR_ONE = "coalesce(bool_and(score IN (0, 1)), true)"


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of score of an experiment's answers.

    key: the name in addresses: the dimension for a rating ("valence"), the scorer for a rule ("exact_match"), the id of
    any other grade condition, "people-" and the name of a queue. Keys of graders of rated items end in ":valence".
    kind, grader: as `grader_kind` and `grader_id` of AnswerScore. dimension: a primary key, or None.
    low, high: the ends of the scale; None if the scale is unbounded or unknown.
    names: other names that mean it, such as those of its grader and of its dimension.
    is_share: means are shares from 0 to 1, shown in percent. False until `settle` has seen the scores.
    """

    key: str
    label: str
    kind: str
    grader: int
    dimension: int | None = None
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = field(default=(), compare=False)
    is_share: bool = field(default=False, compare=False)

    @property
    def is_rating(self) -> bool:
        """True for the models' own ratings, of which none is better than another."""
        return self.kind == "rating"

    @property
    def is_of_people(self) -> bool:
        return self.kind == "person"

    @property
    def grade_condition(self) -> int | None:
        """The primary key of the grade condition; None for ratings and for the people of a queue."""
        return None if self.is_rating or self.is_of_people else self.grader

    @property
    def bounds(self) -> Bounds | None:
        """The ends of the scale; None if the scale is unbounded or unknown. Those of a share are 0 and 1."""
        if self.is_share:
            return SHARE_BOUNDS
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def length(self) -> float | None:
        """The length of the scale; None if the scale is unbounded or unknown."""
        return None if self.low is None or self.high is None else self.high - self.low

    @property
    def lowest(self) -> float:
        """The score of a wrong answer: the low end of the scale, or 0 if it is unknown."""
        return 0.0 if self.low is None else self.low

    def settle(self, scores: ItemScores) -> Measure:
        """Return the measure of these scores: its means are shares if all are 0 or 1, and no other scale is known."""
        ends = None if self.low is None or self.high is None else (self.low, self.high)
        return replace(self, is_share=is_share_scale(scores.is_binary, ends))

    # The kinds of columns of a ResultTable.
    @property
    def mean_column(self) -> Literal["share", "number"]:
        return "share" if self.is_share else "number"

    @property
    def interval_column(self) -> Literal["share_interval", "interval"]:
        return "share_interval" if self.is_share else "interval"

    @property
    def difference_column(self) -> Literal["signed_share", "signed"]:
        return "signed_share" if self.is_share else "signed"

    @property
    def difference_interval_column(self) -> Literal["points_interval", "interval"]:
        return "points_interval" if self.is_share else "interval"


@dataclass(frozen=True, slots=True)
class ConditionScore:
    """The mean or share of one condition on one measure. low, high: None without an interval; `reason` says why.

    n, items: the numbers of scores and of items. missing: planned answers without a score; reasons: by reason, the most
    frequent first. filled: missing answers that count in n, with the lowest score. sd: None for a share. se: clustered
    by item. effective_n: for a share, the number of independent answers with the same variance. All are None if there
    is no score.
    """

    n: int = 0
    items: int = 0
    missing: int = 0
    mean: float | None = None
    sd: float | None = None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    effective_n: float | None = None
    method: str = ""
    reason: str = ""
    reasons: dict[str, int] = field(default_factory=dict)
    filled: int = 0

    @classmethod
    def of(
        cls, estimate: ScoreEstimate | None, missing: int, reasons: Mapping[str, int] | None = None
    ) -> ConditionScore:
        if estimate is None:
            return cls(missing=missing, reasons=dict(reasons or {}))
        return cls(
            n=estimate.n,
            items=estimate.clusters,
            missing=missing,
            mean=estimate.mean,
            sd=None if estimate.is_share else estimate.sd,
            se=estimate.se,
            low=estimate.low,
            high=estimate.high,
            effective_n=estimate.effective_n,
            method=estimate.method,
            reason=estimate.reason,
            reasons=dict(reasons or {}),
        )

    @property
    def planned(self) -> int:
        return self.scored + self.missing

    @property
    def scored(self) -> int:
        """The number of answers that have a score, without the missing answers that count in n."""
        return self.n - self.filled

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def mark(self) -> str:
        """The end of the condition's name in figures: ' (12 of 20)' if some planned answers have no score."""
        return "" if self.n == self.planned else f" ({self.n:,} of {self.planned:,})"

    @property
    def missing_text(self) -> str:
        """The missing answers by reason, such as '8 refused, 1 unreadable'."""
        return ", ".join(f"{n:,} {reason}" for reason, n in self.reasons.items())


def list_measures(experiment: Experiment) -> list[Measure]:
    """Return every measure: ratings by dimension, then rules, judges and panels, then people.

    The primary measure of the design comes first. Adjudications and pairwise verdicts are excluded, because they do not
    measure single conditions. Graders of rated items have a measure for each dimension.
    """
    return list_measures_of_many([experiment])[experiment.pk]


def list_measures_of_many(experiments: Collection[Experiment]) -> dict[int, list[Measure]]:
    """Return the measures of each experiment by its key, in a constant number of queries."""
    keys = [experiment.pk for experiment in experiments]
    graders, people = defaultdict(list), _measure_people(keys)
    for grader in list_graders(keys):
        graders[grader.experiment_id].append(grader)
    dimensions: dict[int, list[Dimension]] = defaultdict(list)
    links = Experiment.dimensions.through.objects.filter(experiment__in=keys)
    for link in links.select_related("dimension").order_by("dimension_id"):
        dimensions[link.experiment_id].append(link.dimension)
    measures = {}
    for experiment in experiments:
        rated = dimensions[experiment.pk]
        names = name_dimensions(rated)
        of_graders = [*_measure_graders(graders[experiment.pk]), *people.get(experiment.pk, [])]
        found = [
            *(
                Measure(
                    names[one.pk],
                    one.title or one.name,
                    "rating",
                    one.pk,
                    one.pk,
                    float(one.scale_min),
                    float(one.scale_max),
                    names=(one.name, str(one)),
                )
                for one in rated
            ),
            *(
                _restrict_to_dimension(grader, dimension, names[dimension.pk])
                for grader in of_graders
                for dimension in rated
            ),
            *(of_graders if not rated else ()),
        ]
        primary = find_primary_measure(experiment, found)
        if primary is not None:
            found.remove(primary)
            found.insert(0, primary)
        measures[experiment.pk] = found
    return measures


def find_primary_measure(experiment: Experiment, measures: Sequence[Measure]) -> Measure | None:
    """Return the measure that the design names as the primary one; None if it names none, or none that exists."""
    try:
        return match_measure(measures, experiment.primary_measure) if experiment.primary_measure else None
    except UnknownNameError:
        return None


def list_grader_measures(experiment: Experiment) -> list[Measure]:
    """Return the measure of each rule, judge and panel, and of the people of each queue, over all dimensions."""
    keys = [experiment.pk]
    return [*_measure_graders(list_graders(keys)), *_measure_people(keys).get(experiment.pk, [])]


def find_measure(experiment: Experiment, key: str) -> Measure | None:
    """Return the measure with this key, the first one for an empty key, or None."""
    measures = list_measures(experiment)
    return next((measure for measure in measures if measure.key == key or not key), None)


def match_measure(measures: Sequence[Measure], name: str) -> Measure:
    """Return the measure that people mean by a key, or by a name that pages show.

    Raise UnknownNameError for a name of none or of several; the message lists the choices.
    """
    choices = [NamedChoice(measure, measure.key, (measure.label, *measure.names)) for measure in measures]
    return find_named(name, choices, "measure")


def name_dimensions(dimensions: Collection[Dimension]) -> dict[int, str]:
    """Return names for addresses by primary key. Dimensions of the same name have their version, too."""
    name_counts = Counter(dimension.name for dimension in dimensions)
    return {
        dimension.pk: dimension.name if name_counts[dimension.name] == 1 else str(dimension) for dimension in dimensions
    }


def list_graders(experiments: Collection[int]) -> list[GradeCondition]:
    """Return all grade conditions except the answers' own ratings, with the objects that labels and scales need."""
    conditions = GradeCondition.objects.filter(experiment__in=experiments).without_own_ratings().order_by("pk")
    with_labels = conditions.select_related("grader", "rubric", "panel", "assignment")
    return list(with_labels.prefetch_related("panel__graders__rubric"))


def _measure_graders(graders: Iterable[GradeCondition]) -> list[Measure]:
    """Return the measures of rules, judges and panels of one experiment.

    A key is the same on each site that has the experiment. `names` has the grader's number on this site, too, because
    older addresses have it.
    """
    kinds = (GradeCondition.Kind.RULE, GradeCondition.Kind.JUDGE, GradeCondition.Kind.PANEL)
    conditions = [grader for grader in graders if grader.kind in kinds and not grader.is_pairwise]
    scorer_counts = Counter(condition.scorer for condition in conditions)
    measures = []
    for condition in conditions:
        low, high = condition.score_range or (None, None)
        is_only = condition.kind == GradeCondition.Kind.RULE and scorer_counts[condition.scorer] == 1
        scorer = SCORERS.get(condition.scorer)
        names = (
            condition.grade_condition_id,
            f"g{condition.pk}",
            condition.scorer,
            scorer.label if scorer else "",
            condition.grader.name if condition.grader else "",
            f"{condition.grader.name} ({condition.rubric})" if condition.grader and condition.rubric else "",
            condition.panel.name if condition.panel else "",
        )
        key = condition.scorer if is_only else condition.grade_condition_id
        shown_names = tuple(name for name in names if name)
        measures.append(Measure(key, condition.label, condition.kind, condition.pk, None, low, high, names=shown_names))
    return measures


RATERS_BY_QUEUE = """SELECT of_answer.experiment_id, of_answer.queue_id, min(of_answer.n), max(of_answer.n) FROM (
        SELECT gc.experiment_id, a.queue_id, g.trial_id, count(g.score) AS n FROM grading_app_grading g
        JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
        JOIN grading_app_raterassignment a ON a.id = gc.assignment_id
        WHERE gc.experiment_id = ANY(%(experiments)s) GROUP BY 1, 2, 3) AS of_answer
    GROUP BY 1, 2 ORDER BY 1, 2"""


def _measure_people(experiments: Sequence[int]) -> dict[int, list[Measure]]:
    """Return a measure for the people of each queue that graded answers by a rubric, by experiment.

    The label counts the raters.
    """
    rows = fetch_rows(RATERS_BY_QUEUE, {"experiments": list(experiments)})
    queues = RatingQueue.objects.select_related("rubric").in_bulk([queue for _, queue, *_ in rows])
    measures = defaultdict(list)
    for experiment, pk, least, most in rows:
        queue = queues[pk]
        if queue.rubric is None:
            continue
        raters = f"{least} to {most} raters" if least < most else f"{most} rater{'' if most == 1 else 's'}"
        label = f"{queue.rubric.display_name} (people of {queue.name}, mean of {raters} per answer)"
        names = (queue.name, f"people of {queue.name}", f"people{queue.pk}")
        low, high = queue.rubric.score_range
        measure = Measure(f"people-{queue.name}", label, "person", queue.pk, None, low, high, names=names)
        measures[experiment].append(measure)
    return measures


def _restrict_to_dimension(grader: Measure, dimension: Dimension, dimension_name: str) -> Measure:
    """Return the grader's scores of one dimension. The grader's own names mean them too, if they are the only ones."""
    title = dimension.title or dimension.name
    grader_names = (grader.key, grader.label, *grader.names)
    suffixes = [f"{joint}{name}" for joint in (":", " · ") for name in (dimension_name, title)]
    return replace(
        grader,
        key=f"{grader.key}:{dimension_name}",
        label=f"{grader.label} · {title}",
        dimension=dimension.pk,
        names=(*grader_names, *(f"{name}{suffix}" for name in grader_names for suffix in suffixes)),
    )


@dataclass(frozen=True, slots=True)
class MeasureScores:
    """The scores of all conditions on one measure, by the conditions' keys; of a share, also by category."""

    measure: Measure
    conditions: dict[int, ConditionScore]
    categories: dict[str, dict[int, ConditionScore]]


class ExtremeShare(NamedTuple):
    """A warning that no answer passed a measure, or that all did. Only the fact belongs into a paper."""

    fact: str
    advice: str

    def __str__(self) -> str:
        return f"{self.fact} {self.advice}"


def describe_extreme(label: str, means: Iterable[float | None]) -> ExtremeShare | None:
    """Return a warning if no answer passed, or if all did. A rule that cannot tell answers apart gives these.

    label: of a measure whose means are shares. means: of all conditions; None for a condition without scores.
    """
    found = {mean for mean in means if mean is not None}
    if found == {0}:
        advice = "Read some answers, then check the rule or rubric and the answer format."
        return ExtremeShare(f"No answer passed {label}.", advice)
    if found == {1}:
        advice = "Read some answers, and check that the rule or rubric can fail one."
        return ExtremeShare(f"Every scored answer passed {label}.", advice)
    return None


def make_scope_parameters(experiment: Experiment, wave: Wave | None) -> dict[str, int | None]:
    """Return the parameters of IN_SCOPE. wave: None for all waves."""
    return {"experiment": experiment.pk, "wave": wave.pk if wave else None}


def load_scores(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> ItemScores:
    """Load the scores of one measure, in one pass over the rows in the database.

    Items are all items with planned answers, in the order of the dataset. Conditions are all conditions that have runs
    (in this wave). A planned answer without a score is missing, whatever the cause (`count_missing`); for people, only
    an answer that they were asked about. exclude: keys of EXCLUSIONS.
    """
    rows = fetch_rows(
        # PostgreSQL's var_pop, because sums of squares would lose digits of large scores.
        f"""SELECT of_cell.* FROM (
            SELECT item_id, condition_id, count(score) AS n, count(*) - count(score) AS missing, avg(score) AS mean,
                var_pop(score) * count(score) AS within, {ALL_ZERO_OR_ONE} AS is_binary
            FROM grading_app_answerscore
            WHERE {IN_SCOPE} AND {OF_MEASURE}{_filter_answers(exclude)} GROUP BY 1, 2
        ) AS of_cell JOIN datasets_app_item i ON i.id = of_cell.item_id ORDER BY i.position, of_cell.item_id""",  # noqa: S608
        make_parameters(experiment, measure, wave),
    )
    runs = experiment.answer_runs.filter(wave=wave) if wave else experiment.answer_runs
    conditions = sorted(set(runs.values_list("condition_id", flat=True)))
    items = list(dict.fromkeys(row[0] for row in rows))
    is_binary = bool(rows) and all(row[6] for row in rows)
    return ItemScores.from_rows([row[:6] for row in rows], items, conditions, is_binary=is_binary)


def make_parameters(experiment: Experiment, measure: Measure, wave: Wave | None = None) -> dict[str, Any]:
    """Return the parameters of IN_SCOPE and of OF_MEASURE."""
    of_measure = {"kind": measure.kind, "grader": measure.grader, "dimension": measure.dimension}
    return {**make_scope_parameters(experiment, wave), **of_measure}


def _filter_answers(exclude: Collection[str]) -> str:
    return "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(exclude))


def count_missing(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> dict[int, dict[str, int]]:
    """Return the number of planned answers without a score, by condition and then by reason, the most frequent first.

    Each answer has one reason. The scope is that of `load_scores`.
    """
    # Not `score IS NULL`: the planner would expect one row, and read all conditions of the site for each answer.
    rows = fetch_rows(
        f"""SELECT condition_id, missing, count(*) FROM grading_app_answerscore
            WHERE {IN_SCOPE} AND {OF_MEASURE}{_filter_answers(exclude)} AND missing <> ''
            GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2""",  # noqa: S608
        make_parameters(experiment, measure, wave),
    )
    reasons: dict[int, dict[str, int]] = {}
    for condition, reason, n in rows:
        reasons.setdefault(condition, {})[reason] = n
    return reasons


def load_graded_scores(
    experiment: int, measures: Sequence[Measure], dimension_ends: Mapping[int, Bounds]
) -> list[tuple[Measure, ItemScores]]:
    """Return the scores that each grader gave, by grader and dimension, in one query.

    Answers that a grader has not seen are left out. Without a scale of its own, a measure has the ends of its
    dimension. Only rules, judges, panels, raters and adjudications are graders here.
    """
    by_grader = {measure.grader: measure for measure in measures}
    rows = fetch_rows(
        f"""SELECT grader_id, dimension_id, item_id, condition_id, count(score), count(*) - count(score), avg(score),
                var_pop(score) * count(score), {ALL_ZERO_OR_ONE}
            FROM grading_app_answerscore
            WHERE experiment_id = %(experiment)s AND grader_id = ANY(%(graders)s) AND grader_kind = ANY(%(kinds)s)
                AND is_graded GROUP BY 1, 2, 3, 4 ORDER BY 1, 2 NULLS FIRST, 4, 3""",  # noqa: S608
        {
            "experiment": experiment,
            "graders": list(by_grader),
            "kinds": list({measure.kind for measure in measures}),
        },
    )
    found = []
    for (grader, dimension), group in groupby(rows, key=lambda row: row[:2]):
        cells = [row[2:] for row in group]
        items, conditions = (list(dict.fromkeys(cell[at] for cell in cells)) for at in (0, 1))
        is_binary = all(cell[6] for cell in cells)
        scores = ItemScores.from_rows([cell[:6] for cell in cells], items, conditions, is_binary=is_binary)
        measure = replace(by_grader[grader], dimension=dimension)
        if measure.bounds is None and dimension in dimension_ends:
            low, high = dimension_ends[dimension]
            measure = replace(measure, low=low, high=high)
        found.append((measure.settle(scores), scores))
    return found


def count_ratings(
    experiment: Experiment,
    measure: Measure,
    items: Collection[int],
    wave: Wave | None = None,
    exclude: Collection[str] = (),
) -> list[tuple[int, str, int | None, int]]:
    """Return (condition, category, rating, number of answers) of a rated measure for these items.

    The rating is None for answers without one. exclude: keys of EXCLUSIONS.
    """
    counts: list[Any] = fetch_rows(
        f"""SELECT condition_id, category, score::integer, count(*) FROM grading_app_answerscore
            WHERE {IN_SCOPE} AND {OF_MEASURE} AND status = 'done' AND item_id = ANY(%(items)s){_filter_answers(exclude)}
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",  # noqa: S608
        {**make_parameters(experiment, measure, wave), "items": list(items)},
    )
    return counts


CHOSEN = """grading_app_answerscore
    JOIN unnest(%(experiments)s::bigint[], %(kinds)s::text[], %(graders)s::bigint[], %(dimensions)s::bigint[])
        AS chosen (experiment_id, grader_kind, grader_id, of_dimension) USING (experiment_id, grader_kind, grader_id)
    WHERE experiment_id = ANY(%(experiments)s) AND grader_kind = ANY(%(kinds)s) AND grader_id = ANY(%(graders)s)
        AND (of_dimension IS NULL OR dimension_id = of_dimension)"""
"""SQL for the scores of one measure of each of several experiments."""


def load_scores_of_many(measures: Mapping[int, Measure]) -> dict[int, ItemScores]:
    """Return the scores of one measure of each experiment by its key, over all waves, as `load_scores` does.

    One query for any number of experiments. Experiments without an answer are left out. Items are in the order of their
    keys.
    """
    rows = fetch_rows(
        f"""SELECT experiment_id, item_id, condition_id, count(score), count(*) - count(score), avg(score),
                var_pop(score) * count(score), {ALL_ZERO_OR_ONE}
            FROM {CHOSEN} GROUP BY 1, 2, 3 ORDER BY 1, 2""",  # noqa: S608
        _choose(measures),
    )
    found = {}
    for experiment, group in groupby(rows, key=lambda row: row[0]):
        cells = [row[1:] for row in group]
        items, conditions = list(dict.fromkeys(cell[0] for cell in cells)), sorted({cell[1] for cell in cells})
        is_binary = all(cell[6] for cell in cells)
        found[experiment] = ItemScores.from_rows([cell[:6] for cell in cells], items, conditions, is_binary=is_binary)
    return found


def count_missing_of_many(measures: Mapping[int, Measure]) -> dict[int, dict[int, dict[str, int]]]:
    """Return what `count_missing` returns for one measure of each experiment, by its key, in one query."""
    rows = fetch_rows(
        f"""SELECT experiment_id, condition_id, missing, count(*) FROM {CHOSEN} AND missing <> ''
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 4 DESC, 3""",  # noqa: S608
        _choose(measures),
    )
    found: dict[int, dict[int, dict[str, int]]] = {}
    for experiment, condition, reason, n in rows:
        found.setdefault(experiment, {}).setdefault(condition, {})[reason] = n
    return found


def _choose(measures: Mapping[int, Measure]) -> dict[str, Any]:
    """Return the parameters of CHOSEN."""
    return {
        "experiments": list(measures),
        "kinds": [measure.kind for measure in measures.values()],
        "graders": [measure.grader for measure in measures.values()],
        "dimensions": [measure.dimension for measure in measures.values()],
    }


def estimate(
    scores: ItemScores,
    measure: Measure,
    condition: int,
    reasons: Mapping[int, Mapping[str, int]] | None = None,
    is_selected: NDArray[np.bool_] | None = None,
) -> ConditionScore:
    """Return the mean or share of one condition, with its interval and its missing answers.

    scores: of all conditions, because they decide together whether means are shares. reasons: of `count_missing`.
    is_selected: (items,); None for all items.
    """
    column = scores.find_column(condition)
    missing = scores.missing[:, column] if is_selected is None else scores.missing[is_selected, column]
    sums = scores.sum_condition(condition, is_selected)
    return ConditionScore.of(
        estimate_mean(sums, measure.settle(scores).bounds), int(missing.sum()), (reasons or {}).get(condition)
    )


def estimate_pair(scores: ItemScores, measure: Measure, a: int, b: int) -> tuple[ConditionScore, ConditionScore]:
    """Return the means of two conditions over their common items. Each item counts once, as in their difference."""
    is_common, _ = scores.pair_conditions(a, b)
    by_item = scores.average_repetitions()
    return estimate(by_item, measure, a, is_selected=is_common), estimate(by_item, measure, b, is_selected=is_common)


def load_measure_scores(experiment: Experiment, wave: Wave | None = None) -> list[MeasureScores]:
    """Return the scores of every measure that answers were planned for, with the reasons of missing scores.

    A condition without a planned answer (in this wave) has no score.
    """
    items = Item.objects.filter(dataset=experiment.dataset_id).values_list("pk", "category")
    category_of = dict(items.iterator())
    found = []
    for measure in list_measures(experiment):
        scores = load_scores(experiment, measure, wave)
        reasons = count_missing(experiment, measure, wave) if scores.missing.any() else {}
        settled = measure.settle(scores)
        keys = scores.conditions.tolist()
        of_items = np.array([category_of[pk] for pk in scores.items.tolist()], dtype=object)
        conditions = {key: one for key in keys if (one := estimate(scores, measure, key, reasons)).planned}
        categories = {
            category: {
                key: one
                for key in keys
                if (one := estimate(scores, measure, key, is_selected=of_items == category)).planned
            }
            for category in (sorted(set(of_items.tolist())) if settled.is_share else ())
        }
        if conditions:
            found.append(MeasureScores(settled, conditions, categories))
    return found
