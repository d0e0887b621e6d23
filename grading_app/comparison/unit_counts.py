"""The ratings of a question, counted by the database: how many units of each item have the same ratings.

The SQL is fixed text. Values from a request are passed only as parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from grading_app.comparison.query import Question
from grading_app.comparison.raters import Rater, keys_of, pairs_of

MOST_KINDS, MOST_LINES, MOST_CELLS = 4_000, 250_000, 8_000_000
"""Limits of the counts: kinds of rated units, kinds per item, and kinds times items. Beyond them, a sample is compared.
Points of a scale stay far below them, with any number of answers; numbers with many digits do not."""
MOST_UNITS = 2_000
"""The size of such a sample. It keeps the units that people rated; the others are drawn by a hash of their keys."""
DRAW_SEED = "agreement-1"

ANSWERS_IN_SCOPE = """SELECT t.id, t.item_id, t.rating FROM runs_app_trial t
    JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_condition c ON c.id = r.condition_id
    JOIN datasets_app_item i ON i.id = t.item_id
    WHERE r.experiment_id = %(experiment)s AND c.stage = 'generate' AND t.status = 'done'
        AND (%(wave)s::bigint IS NULL OR r.wave_id = %(wave)s)
        AND (%(condition)s::bigint IS NULL OR r.condition_id = %(condition)s)
        AND (%(dimension)s::bigint IS NULL OR t.dimension_id = %(dimension)s)
        AND (%(category)s = '' OR i.category = %(category)s)"""

PEOPLE = """FROM grading_app_rating p JOIN grading_app_raterassignment a ON a.id = p.assignment_id
    JOIN unnest(%(queues)s::bigint[], %(asked)s::bigint[]) AS chosen (queue, dimension)
        ON chosen.queue = a.queue_id AND chosen.dimension = p.dimension_id
    WHERE p.kind = 'item' AND p.value IS NOT NULL AND a.excluded_at IS NULL"""
PERSON = "'p' || p.assignment_id || '-' || p.dimension_id"

# Either the whole score, or 1 if one criterion was met and 0 if not. Judges' and people's verdicts have the same
# format.
GRADED_AS = """CASE WHEN %(criterion)s = '' THEN g.score
    ELSE (g.detail -> 'criteria' ->> %(criterion)s)::boolean::integer END"""

SAID_OF_ANSWERS = f"""scope AS ({ANSWERS_IN_SCOPE}), said AS (
    SELECT g.trial_id AS unit, 'g' || g.condition_id AS rater, {GRADED_AS} AS value,
            gc.kind IN ('adjudicated', 'person') AS by_people
        FROM grading_app_grading g JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
        WHERE g.condition_id = ANY(%(graded)s) AND {GRADED_AS} IS NOT NULL
    UNION ALL SELECT s.id, 'own', s.rating, false FROM scope s WHERE %(own)s AND s.rating IS NOT NULL
    UNION ALL SELECT p.trial_id, {PERSON}, p.value, true {PEOPLE} AND p.trial_id IS NOT NULL
)"""  # noqa: S608

ITEMS_IN_SCOPE = """SELECT i.id, i.id AS item_id FROM datasets_app_item i
    WHERE i.dataset_id = %(dataset)s AND NOT i.excluded AND (%(category)s = '' OR i.category = %(category)s)"""
RATED_BY_MODELS = """SELECT t.item_id, r.condition_id, t.rating, row_number() OVER (
        PARTITION BY t.item_id, r.condition_id ORDER BY w.number, t.sample_idx, t.id) AS place
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_wave w ON w.id = r.wave_id
    JOIN runs_app_dimension d ON d.id = t.dimension_id
    WHERE r.experiment_id = %(experiment)s AND t.status = 'done' AND t.rating IS NOT NULL AND d.name = %(named)s
        AND r.condition_id = ANY(%(models)s) AND (%(wave)s::bigint IS NULL OR r.wave_id = %(wave)s)"""

SAID_OF_ITEMS = f"""scope AS ({ITEMS_IN_SCOPE}), of_models AS ({RATED_BY_MODELS}), said AS (
    SELECT p.item_id AS unit, {PERSON} AS rater, p.value::float8 AS value, true AS by_people
        {PEOPLE} AND p.trial_id IS NULL
    UNION ALL SELECT n.item_id, 'norm', n.mean, false FROM datasets_app_norm n
        JOIN scope s ON s.id = n.item_id WHERE %(norms)s AND n.dimension = %(named)s
    UNION ALL SELECT m.item_id, 'c' || m.condition_id, avg(m.rating)::float8, false FROM of_models m
        WHERE m.condition_id = ANY(%(means)s) GROUP BY 1, 2
    UNION ALL SELECT m.item_id, 'c' || m.condition_id || '-' || m.place, m.rating, false FROM of_models m
        WHERE m.place <= %(repetitions)s AND m.condition_id = ANY(%(means)s)
    UNION ALL SELECT m.item_id, 's' || m.condition_id, m.rating, false FROM of_models m
        WHERE m.place = 1 AND m.condition_id = ANY(%(singles)s)
)"""  # noqa: S608

# Two answers are in the order of their conditions. If a condition was chosen, its answers come first.
MET = """SELECT p.id, p.condition_id, gc.kind, ta.item_id,
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
# The key of the first verdict identifies a pair, whichever rater gave it. A judge that saw both orders gives one
# choice: if the order changes the verdict, it counts as a tie (Zheng et al. 2023, section 3.4).
SAID_OF_PAIRS = f"""met AS ({MET}), scope AS (
    SELECT min(id) AS id, item_id, one, other FROM met GROUP BY item_id, one, other
), said AS (
    SELECT scope.id AS unit, 'g' || met.condition_id AS rater, bool_or(met.kind = 'person') AS by_people,
        CASE WHEN min(met.choice) = max(met.choice) THEN min(met.choice) ELSE 0.5 END::float8 AS value
    FROM met JOIN scope USING (one, other)
    WHERE met.condition_id = ANY(%(graded)s) AND met.choice IS NOT NULL GROUP BY 1, 2
)"""  # noqa: S608

GIVEN = """given AS (
    SELECT said.unit, said.rater, (said.value - scales.low) / scales.span AS value, said.by_people, scales.place
    FROM said JOIN unnest(%(raters)s::text[], %(lows)s::float8[], %(spans)s::float8[]) WITH ORDINALITY
        AS scales (rater, low, span, place) ON scales.rater = said.rater)"""
"""The ratings of these raters, each on its own scale or as a share of it."""

UNITS = """SELECT given.unit, count(*) OVER () FROM given JOIN scope ON scope.id = given.unit
    GROUP BY given.unit HAVING min(given.place) <= %(n_raters)s
    ORDER BY bool_or(given.by_people) DESC, md5(given.unit || %(drawn)s) LIMIT %(most)s"""
RATINGS = """SELECT given.unit, given.rater, given.value::float8 FROM given
    WHERE given.unit = ANY(%(units)s) ORDER BY given.unit, given.rater"""
# A unit's ratings as {{rater's place, value}, ...}: units with the same text have the same ratings. Raters have the
# first places. Units that only a reference has a value for are left out.
TALLY = """SELECT item, said::text, count(*) FROM (
        SELECT min(scope.item_id) AS item, array_agg(ARRAY[given.place, given.value] ORDER BY given.place) AS said
        FROM given JOIN scope ON scope.id = given.unit
        WHERE %(units)s::bigint[] IS NULL OR given.unit = ANY(%(units)s)
        GROUP BY given.unit HAVING min(given.place) <= %(n_raters)s) AS rated
    GROUP BY item, said LIMIT %(lines)s"""


@dataclass(frozen=True)
class Frame:
    """The counted ratings of a question.

    lines: (item, kind, number of the item's units with these ratings). kinds: kind -> rater -> value. total: the number
    of units, of which `units` are compared.
    """

    lines: list[tuple[int, str, int]]
    kinds: dict[str, dict[str, float]]
    total: int

    @property
    def units(self) -> int:
        return sum(n for _, _, n in self.lines)


def load_frame(question: Question, most: int = MOST_UNITS) -> Frame:
    """Load all units that a chosen rater rated. If there are too many kinds of units, load a sample of `most` units."""
    whole = _tally(question, None, MOST_LINES + 1)
    if len(whole.lines) <= MOST_LINES and _fits(whole):
        return whole
    given, chosen = given_by(question, _columns(question))
    drawn = rows(f"WITH {given} {UNITS}", {**chosen, "drawn": DRAW_SEED, "most": most})
    part = _tally(question, [unit for unit, _ in drawn], None)
    return Frame(part.lines, part.kinds, drawn[0][1])


def _fits(frame: Frame) -> bool:
    items = len({item for item, _, _ in frame.lines})
    return len(frame.kinds) <= MOST_KINDS and len(frame.kinds) * items <= MOST_CELLS


def _tally(question: Question, units: list[int] | None, most: int | None) -> Frame:
    columns = _columns(question)
    given, chosen = given_by(question, columns)
    lines = rows(f"WITH {given} {TALLY}", {**chosen, "units": units, "lines": most})
    keys = [rater.key for rater in columns]
    kinds = {kind: _said(kind, keys) for kind in dict.fromkeys(kind for _, kind, _ in lines)}
    return Frame([(item, kind, n) for item, kind, n in lines], kinds, sum(n for _, _, n in lines))


def _said(kind: str, keys: list[str]) -> dict[str, float]:
    """Parse '{{1,4},{3,2.5}}' into the first rater's 4 and the third rater's 2.5."""
    pairs = json.loads(kind.replace("{", "[").replace("}", "]"))
    return {keys[round(place) - 1]: float(value) for place, value in pairs}


def _columns(question: Question) -> list[Rater]:
    """Return every column of a frame: the raters, the references, and the single ratings behind means."""
    return [*question.everyone, *(single for singles in question.singles.values() for single in singles)]


def given_by(question: Question, columns: Sequence[Rater] | None = None) -> tuple[str, dict[str, Any]]:
    """Return common table expressions and their parameters, for these columns; by default for the raters alone.

    They define `scope` (id, item_id; for pairs also the two answers, one and other) and `given` (unit, rater, value,
    by_people).
    """
    pairs, keys = pairs_of(question.chosen), {rater.key for rater in question.chosen}
    wanted: dict[str, Any] = {
        "experiment": question.experiment.pk,
        "dataset": question.experiment.dataset_id,
        "queues": [queue for queue, _ in pairs],
        "asked": [dimension for _, dimension in pairs],
        **_narrowing(question.narrowed),
        **_scales(question, question.raters if columns is None else columns),
        "n_raters": len(question.raters),
        "repetitions": question.repetitions,
    }
    graded = keys_of(question.everyone, "g")
    if question.in_pairs:
        return f"{SAID_OF_PAIRS}, {GIVEN}", {**wanted, "graded": graded}
    if question.on_answers:
        of_answers = {"graded": graded, "own": "own" in keys, "criterion": question.criterion}
        return f"{SAID_OF_ANSWERS}, {GIVEN}", {**wanted, **of_answers}
    means, singles = keys_of(question.chosen, "c"), keys_of(question.chosen, "s")
    named = question.units.removeprefix("items:")
    of_items = {"norms": "norm" in keys, "means": means, "singles": singles, "models": [*means, *singles]}
    return f"{SAID_OF_ITEMS}, {GIVEN}", {**wanted, **of_items, "named": named}


def _scales(question: Question, columns: Sequence[Rater]) -> dict[str, list[Any]]:
    """Return the offset and the divisor of each rater's values: 0 and 1, unless values are shares of the scale."""
    scales = [rater.scale if question.as_shares else None for rater in columns]
    return {
        "raters": [rater.key for rater in columns],
        "lows": [float(scale.low) if scale else 0.0 for scale in scales],
        # A scale of one point has no span; 1 avoids a division by zero.
        "spans": [float(scale.high - scale.low) or 1.0 if scale else 1.0 for scale in scales],
    }


def _narrowing(narrowed: Mapping[str, Any]) -> dict[str, Any]:
    keys = {name: narrowed.get(name) or None for name in ("wave", "condition", "dimension")}
    return {**keys, "category": narrowed.get("category") or ""}


def rows(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
