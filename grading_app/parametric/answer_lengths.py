"""The lengths of answers: output tokens of right, wrong and cut-off answers, counted by the database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from evalsite.lib.stats.wilson import wilson
from grading_app.results.answer_aggregates import make_answer_aggregate
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.scores import IN_SCOPE
from grading_app.statistics.survival import SurvivalStep, kaplan_meier, thin_steps
from runs_app.models import Experiment, Wave

MAX_LENGTHS = 4000
"""The maximum number of stored lengths of a condition. More lengths are merged into bands of equal width."""

LENGTHS = f"""SELECT t.output_tokens, count(*) FILTER (WHERE state.cut)::int,
        count(*) FILTER (WHERE NOT state.cut AND g.score = 1)::int,
        count(*) FILTER (WHERE NOT state.cut AND g.score IS DISTINCT FROM 1)::int
    FROM runs_app_answer t JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN grading_app_grading g ON g.condition_id = %(grader)s AND g.trial_id = t.trial_id
    CROSS JOIN LATERAL (SELECT (t.truncated OR g.parse_error = 'truncated') IS TRUE AS cut) AS state
    WHERE {IN_SCOPE} AND t.condition_id = %(condition)s AND t.status = 'done' AND t.output_tokens IS NOT NULL
        AND coalesce(nullif(i.category, ''), i.metadata ->> 'task', '') = %(task)s
    GROUP BY 1 ORDER BY 1"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class AnswerLengths:
    """The number of answers by their output tokens: cut off, right, and finished but not right."""

    tokens: list[int]
    cut: list[int]
    right: list[int]
    wrong: list[int]

    @property
    def answers(self) -> int:
        return sum(self.cut) + sum(self.right) + sum(self.wrong)

    def estimate_survival(self) -> list[SurvivalStep]:
        """Return the share of unfinished answers by tokens. A cut-off answer is censored at its cut."""
        events = Counter(dict(zip(self.tokens, map(sum, zip(self.right, self.wrong, strict=True)), strict=True)))
        return thin_steps(kaplan_meier(events, dict(zip(self.tokens, self.cut, strict=True))))

    def estimate_share_until(self, counts: Sequence[int], tokens: int) -> tuple[float, float, float]:
        """Return the share of answers of this kind that end within `tokens`, with its interval."""
        total = sum(count for length, count in zip(self.tokens, counts, strict=True) if length <= tokens)
        interval = wilson(total, self.answers)
        return total / self.answers, interval.low, interval.high

    def estimate_share_curve(self, counts: Sequence[int]) -> list[tuple[float, float, float, float]]:
        """Return (tokens, share, low, high): the share of answers of this kind that end within the tokens."""
        n, total, curve = self.answers, 0, []
        for tokens, count in zip(self.tokens, counts, strict=True):
            total += count
            if count:
                interval = wilson(total, n)
                curve.append((float(tokens), total / n, interval.low, interval.high))
        return curve


@dataclass(frozen=True, slots=True)
class LengthQuery:
    experiment: Experiment
    grader: int
    condition: int
    task: str
    wave: Wave | None = None


def count_lengths(query: LengthQuery) -> AnswerLengths:
    """Count the answers of one condition in one task by length, in one statement."""
    parameters: Any = {
        "experiment": query.experiment.pk,
        "wave": query.wave.pk if query.wave else None,
        "grader": query.grader,
        "condition": query.condition,
        "task": query.task,
    }
    rows = fetch_rows(LENGTHS, parameters)
    if len(rows) > MAX_LENGTHS:
        rows = _merge_lengths(rows)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    return AnswerLengths(*columns)


def _merge_lengths(rows: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return at most MAX_LENGTHS rows. A band is at its upper end, so that no answer ends too early."""
    width = math.ceil(rows[-1][0] / MAX_LENGTHS)
    bands: dict[int, list[int]] = {}
    for tokens, *counts in rows:
        band = bands.setdefault(math.ceil(tokens / width) * width, [0, 0, 0])
        for index, count in enumerate(counts):
            band[index] += count
    return [(tokens, *counts) for tokens, counts in bands.items()]  # type: ignore[misc]


ANSWER_LENGTHS = make_answer_aggregate(
    "answer_lengths",
    AnswerLengths,
    count_lengths,
    dump=lambda query: [query.grader, query.condition, query.task],
    load=lambda experiment, wave, values: LengthQuery(experiment, values[0], values[1], values[2], wave),
    step="counting answers by length",
    max_rows=60,
)


def get_lengths(query: LengthQuery) -> Cached[AnswerLengths]:
    return get_aggregate(ANSWER_LENGTHS, query.experiment.pk, query)
