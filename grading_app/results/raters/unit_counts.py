"""The ratings of a selection, counted by the database: how many units of each item have the same ratings.

The SQL is fixed text. Values from a request are passed only as parameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.results.raters.raters import Rater, list_dimension_groups, list_ids
from grading_app.results.raters.rating_selection import RatingSelection
from grading_app.results.scores import IN_SCOPE

MAX_PATTERNS, MAX_ROWS, MAX_CELLS = 4_000, 250_000, 8_000_000
"""Limits of the counts: rating patterns, patterns by item, and patterns times items. Beyond them, a sample of units is
compared. Points of a scale stay far below these limits for any number of answers. Numbers with many digits do not."""
SAMPLE_SIZE = 2_000
"""The size of this sample. Units that people rated come first. The others are drawn by a hash of their keys."""
SAMPLE_SEED = "agreement-1"

ANSWERS_IN_SCOPE = f"""SELECT trial_id AS id, item_id, rating FROM runs_app_answer
    WHERE {IN_SCOPE} AND status = 'done' AND item_id IS NOT NULL
        AND (%(condition)s::bigint IS NULL OR condition_id = %(condition)s)
        AND (%(dimension)s::bigint IS NULL OR dimension_id = %(dimension)s)
        AND (%(category)s = '' OR category = %(category)s)"""  # noqa: S608

PEOPLE = """FROM grading_app_rating p JOIN grading_app_raterassignment a ON a.id = p.assignment_id
    JOIN unnest(%(queues)s::bigint[], %(dimensions)s::bigint[]) AS chosen (queue, dimension)
        ON chosen.queue = a.queue_id AND chosen.dimension = p.dimension_id
    WHERE p.kind = 'item' AND p.value IS NOT NULL AND a.excluded_at IS NULL"""
PERSON = "'p' || p.assignment_id || '-' || p.dimension_id"

# The total score; or, for one criterion, 1 if it was met and 0 if not. Judges' and people's verdicts have one format.
GRADE_VALUE = """CASE WHEN %(criterion)s = '' THEN g.score
    ELSE (g.detail -> 'criteria' ->> %(criterion)s)::boolean::integer END"""

ANSWER_VERDICTS = f"""scope AS ({ANSWERS_IN_SCOPE}), verdict AS (
    SELECT g.trial_id AS unit, 'g' || g.condition_id AS rater, {GRADE_VALUE} AS value,
            gc.kind IN ('adjudicated', 'person') AS by_people
        FROM grading_app_grading g JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
        WHERE g.condition_id = ANY(%(graded)s) AND {GRADE_VALUE} IS NOT NULL
    UNION ALL SELECT s.id, 'own', s.rating, false FROM scope s WHERE %(own)s AND s.rating IS NOT NULL
    UNION ALL SELECT p.trial_id, {PERSON}, p.value, true {PEOPLE} AND p.trial_id IS NOT NULL
)"""  # noqa: S608

ITEMS_IN_SCOPE = """SELECT i.id, i.id AS item_id FROM datasets_app_item i
    WHERE i.dataset_id = %(dataset)s AND NOT i.excluded AND (%(category)s = '' OR i.category = %(category)s)"""
MODEL_RATINGS = """SELECT t.item_id, r.condition_id, t.rating, row_number() OVER (
        PARTITION BY t.item_id, r.condition_id ORDER BY w.number, t.sample_idx, t.id) AS place
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_wave w ON w.id = r.wave_id
    JOIN runs_app_dimension d ON d.id = t.dimension_id
    WHERE r.experiment_id = %(experiment)s AND t.status = 'done' AND t.rating IS NOT NULL
        AND d.name = %(dimension_name)s AND r.condition_id = ANY(%(models)s)
        AND (%(wave)s::bigint IS NULL OR r.wave_id = %(wave)s)"""

ITEM_VERDICTS = f"""scope AS ({ITEMS_IN_SCOPE}), of_models AS ({MODEL_RATINGS}), verdict AS (
    SELECT p.item_id AS unit, {PERSON} AS rater, p.value::float8 AS value, true AS by_people
        {PEOPLE} AND p.trial_id IS NULL
    UNION ALL SELECT n.item_id, 'norm', n.mean, false FROM datasets_app_norm n
        JOIN scope s ON s.id = n.item_id WHERE %(norms)s AND n.dimension = %(dimension_name)s
    UNION ALL SELECT m.item_id, 'c' || m.condition_id, avg(m.rating)::float8, false FROM of_models m
        WHERE m.condition_id = ANY(%(means)s) GROUP BY 1, 2
    UNION ALL SELECT m.item_id, 'c' || m.condition_id || '-' || m.place, m.rating, false FROM of_models m
        WHERE m.place <= %(repetitions)s AND m.condition_id = ANY(%(means)s)
    UNION ALL SELECT m.item_id, 's' || m.condition_id, m.rating, false FROM of_models m
        WHERE m.place = 1 AND m.condition_id = ANY(%(singles)s)
)"""  # noqa: S608

# The two answers are in the order of their conditions. If a condition was selected, its answers come first.
PAIRWISE_CHOICES = """SELECT p.id, p.condition_id, gc.kind, ta.item_id,
        CASE WHEN o.a_first THEN ta.id ELSE tb.id END AS one, CASE WHEN o.a_first THEN tb.id ELSE ta.id END AS other,
        CASE p.winner WHEN '' THEN NULL WHEN 'tie' THEN 0.5 ELSE ((p.winner = 'a') = o.a_first)::integer END AS choice
    FROM grading_app_preference p JOIN grading_app_gradecondition gc ON gc.id = p.condition_id
    JOIN runs_app_trial ta ON ta.id = p.trial_a_id JOIN runs_app_trial tb ON tb.id = p.trial_b_id
    JOIN runs_app_run ra ON ra.id = ta.run_id JOIN runs_app_run rb ON rb.id = tb.run_id
    JOIN datasets_app_item i ON i.id = ta.item_id
    CROSS JOIN LATERAL (SELECT CASE WHEN ra.condition_id <> rb.condition_id
            AND %(condition)s::bigint IN (ra.condition_id, rb.condition_id) THEN ra.condition_id = %(condition)s
        ELSE (ra.condition_id, ta.id) < (rb.condition_id, tb.id) END AS a_first) AS o
    WHERE gc.experiment_id = %(experiment)s
        AND (%(wave)s::bigint IS NULL OR %(wave)s = ra.wave_id AND %(wave)s = rb.wave_id)
        AND (%(condition)s::bigint IS NULL OR %(condition)s IN (ra.condition_id, rb.condition_id))
        AND (%(dimension)s::bigint IS NULL OR ta.dimension_id = %(dimension)s)
        AND (%(category)s = '' OR i.category = %(category)s)"""
# The key of the first verdict by any rater identifies a pair. A judge that saw both orders has one choice: if the order
# changes the verdict, it counts as a tie (Zheng et al. 2023, section 3.4).
PAIR_VERDICTS = f"""compared AS ({PAIRWISE_CHOICES}), scope AS (
    SELECT min(id) AS id, item_id, one, other FROM compared GROUP BY item_id, one, other
), verdict AS (
    SELECT scope.id AS unit, 'g' || compared.condition_id AS rater, bool_or(compared.kind = 'person') AS by_people,
        CASE WHEN min(compared.choice) = max(compared.choice) THEN min(compared.choice) ELSE 0.5 END::float8 AS value
    FROM compared JOIN scope USING (one, other)
    WHERE compared.condition_id = ANY(%(graded)s) AND compared.choice IS NOT NULL GROUP BY 1, 2
)"""  # noqa: S608

SCALED_RATINGS = """scaled AS (
    SELECT verdict.unit, verdict.rater, (verdict.value - scales.low) / scales.span AS value, verdict.by_people,
        scales.place
    FROM verdict JOIN unnest(%(raters)s::text[], %(lows)s::float8[], %(spans)s::float8[]) WITH ORDINALITY
        AS scales (rater, low, span, place) ON scales.rater = verdict.rater)"""
"""The ratings of these raters, each on its own scale or as a share of it."""

UNITS = """SELECT scaled.unit, count(*) OVER () FROM scaled JOIN scope ON scope.id = scaled.unit
    GROUP BY scaled.unit HAVING min(scaled.place) <= %(n_raters)s
    ORDER BY bool_or(scaled.by_people) DESC, md5(scaled.unit || %(seed)s) LIMIT %(sample_size)s"""
RATINGS = """SELECT scaled.unit, scaled.rater, scaled.value::float8 FROM scaled
    WHERE scaled.unit = ANY(%(units)s) ORDER BY scaled.unit, scaled.rater"""
# A unit's ratings as {{position of the rater, value}, ...}. Units with the same text have the same ratings. Raters have
# the first positions; units with values of references only are excluded.
PATTERN_COUNTS = """SELECT item, pattern::text, count(*) FROM (
        SELECT min(scope.item_id) AS item, array_agg(ARRAY[scaled.place, scaled.value] ORDER BY scaled.place) AS pattern
        FROM scaled JOIN scope ON scope.id = scaled.unit
        WHERE %(units)s::bigint[] IS NULL OR scaled.unit = ANY(%(units)s)
        GROUP BY scaled.unit HAVING min(scaled.place) <= %(n_raters)s) AS rated
    GROUP BY item, pattern LIMIT %(max_rows)s"""


@dataclass(frozen=True)
class UnitCounts:
    """The counted ratings of a selection.

    counts: (item, pattern, number of the item's units with these ratings). patterns: pattern -> rater -> value.
    total: the number of rated units; `units` of them are compared.
    """

    counts: list[tuple[int, str, int]]
    patterns: dict[str, dict[str, float]]
    total: int

    @property
    def units(self) -> int:
        return sum(n for _, _, n in self.counts)


def load_unit_counts(selection: RatingSelection, sample_size: int = SAMPLE_SIZE) -> UnitCounts:
    """Load all units with a rating by a rater. If there are too many patterns, load a sample of units."""
    all_counts = _count_patterns(selection, None, MAX_ROWS + 1)
    n_patterns, n_items = len(all_counts.patterns), len({item for item, _, _ in all_counts.counts})
    if len(all_counts.counts) <= MAX_ROWS and n_patterns <= MAX_PATTERNS and n_patterns * n_items <= MAX_CELLS:
        return all_counts
    ratings, parameters = build_ratings_sql(selection, _list_columns(selection))
    sampled = fetch_rows(f"WITH {ratings} {UNITS}", {**parameters, "seed": SAMPLE_SEED, "sample_size": sample_size})
    sample = _count_patterns(selection, [unit for unit, _ in sampled], None)
    return UnitCounts(sample.counts, sample.patterns, sampled[0][1])


def _count_patterns(selection: RatingSelection, units: list[int] | None, max_rows: int | None) -> UnitCounts:
    columns = _list_columns(selection)
    ratings, parameters = build_ratings_sql(selection, columns)
    rows = fetch_rows(f"WITH {ratings} {PATTERN_COUNTS}", {**parameters, "units": units, "max_rows": max_rows})
    keys = [rater.key for rater in columns]
    patterns = {}
    for text in dict.fromkeys(text for _, text, _ in rows):
        # '{{1,4},{3,2.5}}' is the first rater's 4 and the third rater's 2.5.
        pairs = json.loads(text.replace("{", "[").replace("}", "]"))
        patterns[text] = {keys[round(position) - 1]: float(value) for position, value in pairs}
    return UnitCounts([(item, text, n) for item, text, n in rows], patterns, sum(n for _, _, n in rows))


def _list_columns(selection: RatingSelection) -> list[Rater]:
    """Return all columns of the counts: the raters, the references, and the single ratings behind means."""
    return [*selection.all_raters, *(single for singles in selection.singles.values() for single in singles)]


def build_ratings_sql(selection: RatingSelection, columns: Sequence[Rater] | None = None) -> tuple[str, dict[str, Any]]:
    """Return common table expressions with their parameters, for these columns or by default for the raters.

    They define `scope` (id, item_id; for pairs also the two answers, one and other) and `scaled` (unit, rater, value,
    by_people).
    """
    dimension_groups, keys = list_dimension_groups(selection.chosen), {rater.key for rater in selection.chosen}
    columns = selection.raters if columns is None else columns
    scales = [rater.scale if selection.as_shares else None for rater in columns]
    parameters: dict[str, Any] = {
        "experiment": selection.experiment.pk,
        "dataset": selection.experiment.dataset_id,
        "queues": [queue for queue, _ in dimension_groups],
        "dimensions": [dimension for _, dimension in dimension_groups],
        **{name: selection.filters.get(name) or None for name in ("wave", "condition", "dimension")},
        "category": selection.filters.get("category") or "",
        "raters": [rater.key for rater in columns],
        # The offset and the divisor of each rater's values: 0 and 1, unless values are rescaled. A scale of one point
        # has no span; 1 avoids a division by zero.
        "lows": [float(scale.low) if scale else 0.0 for scale in scales],
        "spans": [float(scale.high - scale.low) or 1.0 if scale else 1.0 for scale in scales],
        "n_raters": len(selection.raters),
        "repetitions": selection.repetitions,
    }
    graded = list_ids(selection.all_raters, "g")
    if selection.in_pairs:
        return f"{PAIR_VERDICTS}, {SCALED_RATINGS}", {**parameters, "graded": graded}
    if selection.covers_answers:
        answer_parameters = {"graded": graded, "own": "own" in keys, "criterion": selection.criterion}
        return f"{ANSWER_VERDICTS}, {SCALED_RATINGS}", {**parameters, **answer_parameters}
    means, singles = list_ids(selection.chosen, "c"), list_ids(selection.chosen, "s")
    dimension_name = selection.units.removeprefix("items:")
    item_parameters = {"norms": "norm" in keys, "means": means, "singles": singles, "models": [*means, *singles]}
    return f"{ITEM_VERDICTS}, {SCALED_RATINGS}", {**parameters, **item_parameters, "dimension_name": dimension_name}
