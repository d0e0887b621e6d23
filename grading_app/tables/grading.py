"""The tables of the scores and strengths of one grader on the grading tab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import django_tables2 as tables

from evalsite.lib.text import number_format
from grading_app.raters.pairwise_stats import RankedCondition
from grading_app.raters.verdict_stats import AnswerScores
from grading_app.results import statistic_format
from grading_app.results.frames import RatedDimension
from grading_app.results.scores import ConditionScore
from grading_app.tables.results import NumberColumn


class AnswerNames(NamedTuple):
    """The names of the conditions that answered, and the dimensions on which they rated items."""

    conditions: Mapping[int, str]
    dimensions: Mapping[int, RatedDimension]


class AnswerScoreTable(tables.Table):
    """A row for each condition that answered, on each dimension."""

    condition = tables.Column(verbose_name="Answers of", attrs={"td": {"class": "primary"}})
    dimension = tables.Column()
    n = NumberColumn(accessor="score__n", verbose_name="Scores")
    items = NumberColumn(accessor="score__items")
    unread = NumberColumn(accessor="score__missing", verbose_name="No score")
    mean = NumberColumn(accessor="score__mean")
    interval = NumberColumn(accessor="score", verbose_name="95 % interval")

    class Meta:
        orderable = False
        default = number_format.MISSING
        attrs = {"class": "data-table keep-table"}
        sequence = ("condition", "dimension", "mean", "interval", "n", "items", "unread")

    def __init__(self, means: Iterable[AnswerScores], names: AnswerNames) -> None:
        self.names = names
        rows = list(means)
        super().__init__(rows, exclude=() if any(row.dimension for row in rows) else ("dimension",))

    def render_condition(self, value: int) -> str:
        return self.names.conditions.get(value, number_format.MISSING)

    def render_dimension(self, value: int) -> str:
        dimension = self.names.dimensions.get(value)
        return dimension.title if dimension else number_format.MISSING

    def render_n(self, value: int) -> str:
        return number_format.format_count(value)

    def render_items(self, value: int) -> str:
        return number_format.format_count(value)

    def render_unread(self, value: int) -> str:
        return number_format.format_count(value)

    def render_mean(self, value: float, record: AnswerScores) -> str:
        return statistic_format.format_mean(value, record.is_share)

    def render_interval(self, value: ConditionScore, record: AnswerScores) -> str:
        if value.low is None:
            return value.reason or number_format.MISSING
        return statistic_format.format_mean_interval(value.low, value.high, record.is_share)


class StrengthTable(tables.Table):
    """The log-strengths of the conditions that a pairwise rater compared."""

    label = tables.Column(verbose_name="Condition")
    strength = NumberColumn()
    interval = NumberColumn(verbose_name="95 % interval", empty_values=())

    class Meta:
        orderable = False

    def render_strength(self, value: float) -> str:
        return statistic_format.format_number(value, 3)

    def render_interval(self, record: RankedCondition) -> str:
        return statistic_format.format_interval(record.low, record.high, 3)
