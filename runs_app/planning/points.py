"""Points of an adaptive design: their items, their number of cases, and their first rounds."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from evalsite.lib.sql import fetch_rows
from runs_app.engine.adaptive_rounds import add_cases
from runs_app.experiment_files.adaptive_spec import CATEGORY, POINT, RATING, AdaptiveSpec, get_task_name
from runs_app.models import Dimension, Experiment, Run
from runs_app.models.points import format_point_label
from runs_app.stopping.rules import WIDTH_FIELDS, expect_cases, expect_ratings

SEED = 42  # For the order of a point's items. It is the same in every condition, so that conditions are comparable.

BY_CATEGORY = "jsonb_build_object('category', i.category)"
BY_POINT = "jsonb_build_object('task', i.category, 'point', i.metadata ->> 'point')"
BY_PARAMETERS = "(SELECT jsonb_object_agg(name, i.metadata -> name) FROM unnest(%(names)s::text[]) AS name)"
GUESS = "CASE WHEN jsonb_array_length(i.choices) > 0 THEN 1.0 / jsonb_array_length(i.choices) ELSE 0 END"
ITEMS = "FROM datasets_app_item i WHERE i.dataset_id = %(dataset)s AND NOT i.excluded"

# Every item of a point is drawn once before any is repeated: a new item gives more information than a repetition.
INSERT_POINTS = f"""
INSERT INTO runs_app_point (run_id, dimension_id, key, items, n_items, status, n_planned, n_correct, n_total,
    n_truncated, n_unread, n_failed, n_rated_items, guess_chances, reason, rounds)
SELECT %(run)s, dimension, key, items, cardinality(items), 'open', 0, 0, 0, 0, 0, 0, 0, 0, '', '[]'
FROM unnest(%(dimensions)s::bigint[]) WITH ORDINALITY AS asked (dimension, nth)
CROSS JOIN (SELECT {{key}} AS key, min(i.position) AS first,
    array_agg(i.id ORDER BY md5(concat_ws('/', %(seed)s::text, i.key)), i.id) AS items {ITEMS} GROUP BY 1) AS places
ORDER BY nth, first, key
ON CONFLICT (run_id, key, dimension_id) DO NOTHING
"""  # noqa: S608 - constants
SIZES = f"SELECT {{key}}, count(*), avg({GUESS})::float8 {ITEMS} GROUP BY 1 ORDER BY min(i.position), 1"

# The settings of the point's task, else those of the design.
MAX_ANSWERS, ROUND = (
    f"coalesce((%(tasks)s::jsonb -> coalesce(p.key ->> 'task', p.key ->> 'category') ->> '{name}')::int, %({name})s)"
    for name in ("max", "round")
)
# If the design gets more samples, an exhausted point has more cases.
REOPEN_EXHAUSTED = f"""
UPDATE runs_app_point p SET status = 'open' WHERE run_id = %(run)s AND status = 'exhausted'
    AND n_planned < least({MAX_ANSWERS}, n_items * %(samples)s)
"""  # noqa: S608 - constants
NEXT_ROUND = f"""
SELECT id, least(n_planned + {ROUND}, {MAX_ANSWERS}, n_items * %(samples)s) FROM runs_app_point p
WHERE run_id = %(run)s AND status = 'open' AND (n_planned = 0 OR id = ANY(%(reopened)s))
"""  # noqa: S608 - constants


# The cases that points may still get: those of open points, and of points that were exhausted before the design grew.
COUNT_REMAINING = f"""
SELECT p.run_id, p.dimension_id, coalesce(sum(least({MAX_ANSWERS}, p.n_items * %(samples)s) - p.n_planned)
    FILTER (WHERE p.status = 'open'
        OR (p.status = 'exhausted' AND p.n_planned < least({MAX_ANSWERS}, p.n_items * %(samples)s))), 0)
FROM runs_app_point p JOIN runs_app_run r ON r.id = p.run_id WHERE r.experiment_id = %(experiment)s GROUP BY 1, 2
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class PointSize:
    """A point before planning: the number of its items, their mean guess chance, and the dimension of its ratings."""

    key: dict[str, Any]
    items: int
    guess: float
    dimension: Dimension | None = None

    @property
    def label(self) -> str:
        return format_point_label(self.key, self.dimension)

    def get_max_cases(self, spec: AdaptiveSpec, samples: int) -> int:
        return min(spec.for_point(self.key).max, self.items * samples)

    def compute_expected_cases(self, spec: AdaptiveSpec, samples: int) -> float:
        """Return the expected cases at the stop. Every accuracy, or every spread of ratings, is equally likely."""
        point_spec = spec.for_point(self.key)
        rule = point_spec.rule(self.get_max_cases(spec, samples))
        if self.dimension is not None:
            return expect_ratings(rule, point_spec.round, self.dimension.scale, self.items)
        return expect_cases(rule, point_spec.round, round(self.guess, 3), self.items)


def read_adaptive_spec(experiment: Experiment) -> AdaptiveSpec | None:
    return AdaptiveSpec.model_validate(experiment.adaptive) if experiment.adaptive else None


def measure_points(dataset: int, spec: AdaptiveSpec, dimensions: Sequence[Dimension]) -> list[PointSize]:
    """Return the points of a dataset's active items, on each dimension, in the order of their first items."""
    sizes = fetch_rows(SIZES.format(key=_get_key_sql(spec)), {"dataset": dataset, "names": spec.names})
    rows = [(read_key(key), n, guess) for key, n, guess in sizes]
    return [PointSize(*row, dimension) for dimension in dimensions or (None,) for row in rows]


@dataclass(frozen=True, slots=True)
class PointForecast:
    """The maximum and the expected number of cases of one point in one condition."""

    label: str
    items: int
    guess_percent: int
    scale: str
    most: int
    expected: int


def forecast_points(spec: AdaptiveSpec, points: list[PointSize], samples: int) -> list[PointForecast]:
    return [
        PointForecast(
            point.label,
            point.items,
            round(100 * point.guess),
            "{} to {}".format(*point.dimension.scale) if point.dimension else "",
            point.get_max_cases(spec, samples),
            round(point.compute_expected_cases(spec, samples)),
        )
        for point in points
    ]


def count_remaining_cases(experiment: Experiment, spec: AdaptiveSpec, points: Sequence[PointSize]) -> dict[int, int]:
    """Return the number of cases that the points of each run may still get; 0 if all points are decided.

    `points` are those of the design. If a run has no points on a dimension yet, planning creates them.
    """
    most: Counter[int | None] = Counter()
    for point in points:
        most[point.dimension.pk if point.dimension else None] += point.get_max_cases(spec, experiment.samples)
    by_run: dict[int, dict[int | None, int]] = defaultdict(dict)
    limits = {"experiment": experiment.pk, "samples": experiment.samples, **_build_limit_parameters(spec)}
    for run, dimension, cases in fetch_rows(COUNT_REMAINING, limits):
        by_run[run][dimension] = int(cases)
    return {
        run: sum(planned.values()) + sum(cases for dimension, cases in most.items() if dimension not in planned)
        for run, planned in by_run.items()
    }


def find_problems(spec: AdaptiveSpec, points: list[PointSize], dimensions: Sequence[Dimension]) -> Iterator[str]:
    """Yield the problems that prevent an adaptive design."""
    if dimensions and not spec.is_rated:
        yield f"adaptive.scorer: {spec.scorer} scores answers as right or wrong; choose {RATING} for rated items"
    if spec.is_rated and not dimensions:
        yield f"adaptive.scorer: {RATING} needs dimensions on which items are rated; add one, or choose another scorer"
    if spec.is_rated:
        for dimension in dimensions:
            low, high = dimension.scale
            for name in WIDTH_FIELDS:
                width = getattr(spec, name)
                if width is not None and 2 * width >= high - low:
                    scale = f"the whole scale of {dimension}, {low} to {high}"
                    yield f"adaptive.{name}: ±{width:g} covers {scale}; reduce it"
    planned = {get_task_name(point.key) for point in points}
    for name in spec.tasks:
        if name not in planned:
            yield f"adaptive.tasks.{name}: no item has this category; the items have {', '.join(sorted(planned))[:200]}"
    for name in spec.names:
        n_missing = sum(point.items for point in points if point.key[name] in (None, "")) // max(1, len(dimensions))
        if n_missing and spec.by == CATEGORY:
            yield f"adaptive.by: {n_missing:,} items have no category"
        elif n_missing and spec.by == POINT:
            yield f"adaptive.by: {n_missing:,} items belong to no parametric point; name metadata fields or category"
        elif n_missing:
            yield f"adaptive.by: {n_missing:,} items have no {name} in their metadata"


def open_points(spec: AdaptiveSpec, run: Run, experiment: Experiment) -> int:
    """Create the missing points of a run, plan their first round, and return the number of new trials.

    The caller holds the experiment's row lock, so no other process plans meanwhile.
    """
    parameters: dict[str, Any] = {
        "run": run.pk,
        "dataset": experiment.dataset_id,
        "names": spec.names,
        "seed": SEED,
        "samples": experiment.samples,
        **_build_limit_parameters(spec),
        "dimensions": list(experiment.dimensions.order_by("pk").values_list("pk", flat=True)) or [None],
    }
    with connection.cursor() as cursor:
        cursor.execute(INSERT_POINTS.format(key=_get_key_sql(spec)), parameters)
        cursor.execute(REOPEN_EXHAUSTED + " RETURNING id", parameters)
        parameters["reopened"] = [pk for (pk,) in cursor.fetchall()]
        cursor.execute(NEXT_ROUND, parameters)
        return add_cases(dict(cursor.fetchall()))


def _get_key_sql(spec: AdaptiveSpec) -> str:
    return {CATEGORY: BY_CATEGORY, POINT: BY_POINT}[spec.by] if isinstance(spec.by, str) else BY_PARAMETERS


def _build_limit_parameters(spec: AdaptiveSpec) -> dict[str, Any]:
    """Return the parameters of MAX_ANSWERS and ROUND."""
    return {"max": spec.max, "round": spec.round, "tasks": json.dumps(spec.limits())}


def read_key(key: Any) -> dict[str, Any]:
    """Return a jsonb value as a mapping. A bare cursor returns it as text."""
    return dict(json.loads(key) if isinstance(key, str) else key)
