"""The aggregates behind tables and figures: counts and sums of an experiment's rows, computed by the database.

A frame has at most one row for each condition, dimension and category (or item), never one for each trial.

Here, a rule is any source of scores: a scorer, a judge, a panel, or the people of a rating queue. Its key is the key of
its grade condition; for the people of a queue, it is the negated key of the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.intervals import Bounds
from runs_app.models import Condition, Experiment, Wave
from runs_app.models.trials import REFUSED_CLASS
from runs_app.monitoring.point_status import PointLine, list_point_lines
from runs_app.planning.conditions import get_condition_hash

SqlParameters = Mapping[str, int | None]
"""The parameters of IN_SCOPE: the primary keys of an experiment and a wave. The wave is None for all waves."""
IN_EXPERIMENT = """r.experiment_id = %(experiment)s AND r.condition_id IN (
        SELECT id FROM runs_app_condition WHERE experiment_id = %(experiment)s AND stage = 'generate')"""
IN_SCOPE = f"{IN_EXPERIMENT} AND (%(wave)s::bigint IS NULL OR r.wave_id = %(wave)s)"
# The fields of `ClusterSums` and the number of answers without a score, from one row for each item. An item's row has
# n scores with sum s, from `asked` answers, and `within`, the sum of their squared deviations. The sums are taken about
# a whole number near the scores (`origin`), so that large scores keep their digits.
CLUSTER_SUMS = """coalesce(sum(n), 0)::float8, coalesce(sum(d), 0)::float8,
    coalesce(sum(within + d * d / nullif(n, 0)), 0)::float8, count(*) FILTER (WHERE n > 0)::float8,
    coalesce(sum(d * d), 0)::float8, coalesce(sum(n * d), 0)::float8, coalesce(sum(n * n), 0)::float8,
    max(origin)::float8, sum(asked - n)::bigint"""


def select_cluster_sums(keys: str, item_sums: str, more: str = "") -> str:
    """Return SQL for CLUSTER_SUMS by these keys. `item_sums` is SQL with a row for each item, `more` are aggregates."""
    return f"""WITH of_item AS MATERIALIZED ({item_sums}), with_origin AS (
            SELECT of_item.*, coalesce(round(avg(s / nullif(n, 0)) OVER (PARTITION BY {keys})), 0) AS origin
            FROM of_item)
        SELECT {keys}, {more}{CLUSTER_SUMS} FROM (SELECT *, s - n * origin AS d FROM with_origin) AS centred
        GROUP BY {keys}"""  # noqa: S608 - fixed text


def select_item_sums(score: str) -> str:
    """Return the columns that `select_cluster_sums` needs in an item's row, from this column of scores."""
    return f"""count(*) AS asked, count({score}) AS n, coalesce(sum({score}::float8), 0) AS s,
        coalesce(var_pop({score}::float8) * count({score}), 0) AS within"""


@dataclass(frozen=True, slots=True)
class RatedDimension:
    """A dimension on which items are rated: its title and the ends of its scale."""

    title: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The numbers of trials of one condition by outcome.

    `unread`, `empty` and `truncated` count done trials. `refused` counts failed trials, too. A trial may have several
    of these outcomes.
    """

    condition: int
    trials: int
    done: int
    failed: int
    open: int
    unread: int
    empty: int
    truncated: int
    refused: int


@dataclass(frozen=True, slots=True)
class ScoreCell:
    """The scores of one condition in one category: ratings of a dimension, or scores by a grader.

    `rule` is the key of the grader, or None for ratings. `unread` is the number of planned answers without a score.
    With `is_binary`, all scores are 0 or 1.
    """

    condition: int
    category: str
    dimension: int | None
    rule: int | None
    sums: ClusterSums
    unread: int
    is_binary: bool


@dataclass(frozen=True, slots=True)
class NormPair:
    """One item on one dimension: the mean of a condition's n ratings and the mean of people."""

    condition: int
    dimension: int
    item_key: str
    n: int
    model_mean: float
    human_mean: float


@dataclass(frozen=True, slots=True)
class Frames:
    """All aggregates of an experiment, in one wave or in all.

    `labels` are the names of its conditions, in the order of the design. `rules` are the names of its graders, with the
    people of each queue as one grader. The ratings that models give as answers are not among them: they are in
    `ratings`. `rule_bounds` are the ends of the graders' scales.
    """

    labels: dict[int, str]
    dimensions: dict[int, RatedDimension]
    rules: dict[int, str]
    outcomes: list[Outcomes]
    ratings: list[ScoreCell]
    grades: list[ScoreCell]
    rating_counts: dict[tuple[int, int], dict[int, int]]
    norm_pairs: list[NormPair]
    points: list[PointLine] = field(default_factory=list)
    rule_bounds: dict[int, Bounds] = field(default_factory=dict)


def load_frames(experiment: Experiment, wave: Wave | None = None, letters: Mapping[int, str] | None = None) -> Frames:
    """Load all aggregates of the experiment, in at most five passes over its rows in the database."""
    parameters = make_scope_parameters(experiment, wave)
    dimensions = load_dimensions(experiment)
    graders = list_graders(experiment)
    rules, people = load_rule_labels(experiment, graders), load_people_labels(experiment)
    rule_cells = load_grade_cells(parameters, list(rules)) if rules else []
    labels = load_condition_labels(experiment, wave, letters)
    return Frames(
        labels=labels,
        dimensions=dimensions,
        rules={**rules, **people},
        outcomes=sorted(load_outcomes(parameters), key=lambda row: list(labels).index(row.condition)),
        ratings=load_rating_cells(parameters) if dimensions else [],
        grades=[*rule_cells, *load_grade_cells(parameters, list(people), BY_PEOPLE)] if people else rule_cells,
        rating_counts=load_rating_counts(parameters) if dimensions else {},
        norm_pairs=load_norm_pairs(parameters) if dimensions else [],
        points=list_point_lines(experiment, wave),
        rule_bounds=list_rule_bounds(graders),
    )


def make_scope_parameters(experiment: Experiment, wave: Wave | None) -> SqlParameters:
    """Return the parameters of IN_SCOPE."""
    return {"experiment": experiment.pk, "wave": wave.pk if wave else None}


def load_dimensions(experiment: Experiment) -> dict[int, RatedDimension]:
    return {
        dimension.pk: RatedDimension(dimension.title or dimension.name, dimension.scale_min, dimension.scale_max)
        for dimension in experiment.dimensions.order_by("pk")
    }


def load_rule_labels(experiment: Experiment, graders: Sequence[GradeCondition] | None = None) -> dict[int, str]:
    """Return the labels of all graders except people, who have a label for each queue (`load_people_labels`).

    Adjudications are excluded: they decide single answers, so their mean does not describe a condition.
    """
    conditions = list_graders(experiment) if graders is None else graders
    other_kinds = (GradeCondition.Kind.PERSON, GradeCondition.Kind.ADJUDICATED)
    return {rule.pk: rule.label for rule in conditions if rule.kind not in other_kinds}


def list_graders(experiment: Experiment) -> list[GradeCondition]:
    """Return all grade conditions except the answers' own ratings, with the objects that labels and scales need."""
    conditions = experiment.grade_conditions.exclude(scorer="rating").order_by("pk")
    with_labels = conditions.select_related("grader", "rubric", "panel", "assignment")
    return list(with_labels.prefetch_related("panel__graders__rubric"))


def load_people_labels(experiment: Experiment) -> dict[int, str]:
    """Return a label for the people of each queue that graded by a rubric, with the number of raters per answer.

    The keys are the negated primary keys of the queues.
    """
    rows = fetch_rows(RATERS_BY_QUEUE, {"experiment": experiment.pk})
    return {
        -queue: f"people of {name} ({rubric}@{version}), mean of {describe_rater_counts(least, most)}"
        for queue, name, rubric, version, least, most in rows
    }


def list_rule_bounds(graders: Sequence[GradeCondition]) -> dict[int, Bounds]:
    """Return the ends of each grader's scale, by the keys of `load_rule_labels` and `load_people_labels`."""
    ranges = {-grader.assignment.queue_id if grader.assignment else grader.pk: grader.score_range for grader in graders}
    return {key: ends for key, ends in ranges.items() if ends}


RATERS_BY_QUEUE = """SELECT q.id, q.name, u.name, u.version, min(of_answer.n), max(of_answer.n) FROM (
        SELECT a.queue_id, g.trial_id, count(g.score) AS n FROM grading_app_grading g
        JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
        JOIN grading_app_raterassignment a ON a.id = gc.assignment_id
        WHERE gc.experiment_id = %(experiment)s GROUP BY 1, 2) AS of_answer
    JOIN grading_app_ratingqueue q ON q.id = of_answer.queue_id JOIN grading_app_rubric u ON u.id = q.rubric_id
    GROUP BY 1, 2, 3, 4 ORDER BY 1"""


def describe_rater_counts(least: int, most: int) -> str:
    """Return a text such as '1 rater per answer' or '1 to 3 raters per answer'."""
    if least < most:
        return f"{least} to {most} raters per answer"
    return f"{most} rater{'' if most == 1 else 's'} per answer"


def load_condition_labels(
    experiment: Experiment, wave: Wave | None = None, letters: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Return labels of the conditions that have runs (in this wave), in the order of the design.

    `letters` are the letters of a blind reading by model. They replace the names of models and give the order.
    """
    runs = experiment.runs.generating().filter(wave=wave) if wave else experiment.runs.generating()
    conditions = Condition.objects.filter(pk__in=runs.values("condition"))
    return make_condition_labels(list(conditions.select_related("model", "prompt", "sampler").order_by("pk")), letters)


def load_facets(experiment: Experiment, letters: Mapping[int, str] | None = None) -> dict[int, tuple[str, str, str]]:
    """Return model, prompt and sampler of each condition by name, with the versions of prompt and sampler."""
    conditions = Condition.objects.filter(experiment=experiment, stage=Condition.Stage.GENERATE)
    with_facets = conditions.select_related("model", "prompt", "sampler")
    return {condition.pk: _name_facets(condition, True, letters) for condition in with_facets}


def sum_outcomes(outcomes: Collection[Outcomes]) -> Outcomes:
    """Return the sum over several conditions. The condition of the sum is 0."""
    counts = ([getattr(row, name) for row in outcomes] for name in Outcomes.__slots__[1:])
    return Outcomes(0, *map(sum, counts))


def load_outcomes(parameters: SqlParameters) -> list[Outcomes]:
    """Return a row for each condition, in the order of the design."""
    statement = f"""SELECT r.condition_id, count(*), count(*) FILTER (WHERE t.status = 'done'),
            count(*) FILTER (WHERE t.status = 'failed'),
            count(*) FILTER (WHERE t.status IN ('pending', 'running')),
            count(*) FILTER (WHERE t.status = 'done' AND t.parse_error <> ''),
            count(*) FILTER (WHERE t.status = 'done' AND t.answer = ''),
            count(*) FILTER (WHERE t.status = 'done' AND t.truncated),
            count(*) FILTER (WHERE t.status = 'done' AND t.refused
                OR t.status = 'failed' AND t.error_class = '{REFUSED_CLASS}')
        FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
        WHERE {IN_SCOPE} GROUP BY 1 ORDER BY 1"""  # noqa: S608
    return [Outcomes(*row) for row in fetch_rows(statement, parameters)]


def load_rating_cells(parameters: SqlParameters) -> list[ScoreCell]:
    """Return ratings by condition, dimension and category."""
    item_sums = f"""SELECT r.condition_id, i.category, t.dimension_id, t.item_id, {select_item_sums("t.rating")}
        FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN datasets_app_item i ON i.id = t.item_id
        WHERE {IN_SCOPE} AND t.dimension_id IS NOT NULL GROUP BY 1, 2, 3, 4"""  # noqa: S608
    statement = f"{select_cluster_sums('condition_id, category, dimension_id', item_sums)} ORDER BY 1, 3, 2"
    return [
        _make_cell(condition, category, dimension, None, False, sums)
        for condition, category, dimension, *sums in fetch_rows(statement, parameters)
    ]


BY_RULES = """SELECT condition_id AS rule, trial_id, score FROM grading_app_grading
    WHERE condition_id = ANY(%(rules)s)"""
# The score that the people of a queue give to an answer is their mean. A negative rule is a queue, not a condition.
BY_PEOPLE = """SELECT -a.queue_id AS rule, g.trial_id, avg(g.score) AS score FROM grading_app_grading g
    JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
    JOIN grading_app_raterassignment a ON a.id = gc.assignment_id
    WHERE gc.experiment_id = %(experiment)s AND -a.queue_id = ANY(%(rules)s) GROUP BY 1, 2"""


def load_grade_cells(parameters: SqlParameters, rules: list[int], graded: str = BY_RULES) -> list[ScoreCell]:
    """Return scores by grader, condition and category. A rated item is one cluster on each dimension.

    All planned answers count as asked; for people, those that they were asked about.
    """
    scored = f"({graded}) g JOIN runs_app_trial t ON t.id = g.trial_id"
    planned = """runs_app_trial t CROSS JOIN unnest(%(rules)s::bigint[]) AS of_rule (rule)
        LEFT JOIN grading_app_grading graded ON graded.trial_id = t.id AND graded.condition_id = of_rule.rule
        CROSS JOIN LATERAL (SELECT of_rule.rule, graded.score) AS g"""
    item_sums = f"""SELECT r.condition_id, i.category, t.dimension_id, g.rule, t.item_id, {select_item_sums("g.score")},
            coalesce(bool_and(g.score IN (0, 1)), true) AS zero_or_one
        FROM {planned if graded == BY_RULES else scored}
        JOIN runs_app_run r ON r.id = t.run_id JOIN datasets_app_item i ON i.id = t.item_id
        WHERE {IN_SCOPE} GROUP BY 1, 2, 3, 4, 5"""  # noqa: S608
    keys = "condition_id, category, dimension_id, rule"
    statement = f"{select_cluster_sums(keys, item_sums, 'bool_and(zero_or_one), ')} ORDER BY 4, 1, 3, 2"
    return [
        _make_cell(condition, category, dimension, rule, is_binary, sums)
        for condition, category, dimension, rule, is_binary, *sums in fetch_rows(
            statement, {**parameters, "rules": rules}
        )
    ]


def load_rating_counts(parameters: SqlParameters) -> dict[tuple[int, int], dict[int, int]]:
    """Return the number of answers with each rating, by condition and dimension."""
    statement = f"""SELECT r.condition_id, t.dimension_id, t.rating, count(*)
        FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
        WHERE {IN_SCOPE} AND t.status = 'done' AND t.dimension_id IS NOT NULL AND t.rating IS NOT NULL
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""  # noqa: S608
    counts: dict[tuple[int, int], dict[int, int]] = {}
    for condition, dimension, rating, count in fetch_rows(statement, parameters):
        counts.setdefault((condition, dimension), {})[rating] = count
    return counts


def load_norm_pairs(parameters: SqlParameters) -> list[NormPair]:
    """Return the items that have both ratings and a human norm. Norms are matched by the dimension's name."""
    statement = f"""SELECT of_item.condition_id, of_item.dimension_id, i.key, of_item.n, of_item.mean, h.mean FROM (
            SELECT r.condition_id, t.dimension_id, t.item_id, count(*) AS n, avg(t.rating)::float8 AS mean
            FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
            WHERE {IN_SCOPE} AND t.status = 'done' AND t.rating IS NOT NULL GROUP BY 1, 2, 3
        ) AS of_item
        JOIN runs_app_dimension d ON d.id = of_item.dimension_id
        JOIN datasets_app_item i ON i.id = of_item.item_id
        JOIN datasets_app_norm h ON h.item_id = of_item.item_id AND h.dimension = d.name
        ORDER BY 1, 2, i.position"""  # noqa: S608
    return [NormPair(*row) for row in fetch_rows(statement, parameters)]


def make_condition_labels(conditions: list[Condition], letters: Mapping[int, str] | None = None) -> dict[int, str]:
    """Return labels that distinguish the conditions, in their order or in the order of a blind reading's letters.

    A label has the names of the facets that differ. If names are not enough, it has versions, too. If versions are not
    enough, it has the hash of the request, for example for a model that was changed under the same name.
    """
    if letters:
        positions = {key: position for position, key in enumerate(letters)}
        conditions = sorted(conditions, key=lambda condition: (positions[condition.model_id], condition.pk))
    for versioned in (False, True):
        parts = {condition.pk: _name_facets(condition, versioned, letters) for condition in conditions}
        differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
        labels = {
            pk: " · ".join(name for name, varies in zip(names, differs, strict=True) if varies) or names[0]
            for pk, names in parts.items()
        }
        if len(set(labels.values())) == len(labels):
            return labels
    label_counts = Counter(labels.values())
    hashes = {condition.pk: get_condition_hash(condition.condition_id) for condition in conditions}
    return {pk: f"{label} ({hashes[pk]})" if label_counts[label] > 1 else label for pk, label in labels.items()}


def _name_facets(
    condition: Condition, versioned: bool, letters: Mapping[int, str] | None = None
) -> tuple[str, str, str]:
    prompt, sampler = condition.prompt, condition.sampler
    model = letters[condition.model_id] if letters else condition.model.name
    if versioned:
        return model, str(prompt), str(sampler)
    return model, condition.prompt_label, sampler.name


def _make_cell(
    condition: int, category: str, dimension: int | None, rule: int | None, is_binary: bool, sums: list[Any]
) -> ScoreCell:
    *cluster_sums, unread = sums
    return ScoreCell(condition, category, dimension, rule, ClusterSums(*cluster_sums), unread, is_binary)
