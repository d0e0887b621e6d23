"""The tables of the agreement page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import django_tables2 as tables
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.text.number_format import MISSING, format_count
from grading_app.results import statistic_format
from grading_app.tables.results import NumberColumn

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import JudgeComparison, MeasureResult
    from grading_app.statistics.estimates import AgreementEstimate
from grading_app.statistics.known_coverage import describe_estimates_coverage

BELOW_ZERO = "below 0: ratings of one unit differ more than the units do. Report it as no reliability."


class EstimateTable(tables.Table):
    """A table of named estimates of agreement. `coverage_note` says which of their intervals cover less than 95 %."""

    def format_interval(self, low: float | None, high: float | None) -> str:
        return statistic_format.format_interval(low, high)

    @property
    def coverage_note(self) -> str:
        return describe_estimates_coverage((row.name, row.estimate) for row in self.data)

    def render_interval(self, record: MeasureResult | JudgeEstimate) -> str:
        """Return the interval, or the reason why it is missing."""
        if record.estimate is None:
            return MISSING
        interval = self.format_interval(record.estimate.low, record.estimate.high)
        return interval if interval != MISSING else record.estimate.interval.removeprefix("no interval: ") or MISSING


class MeasureTable(EstimateTable):
    """A row for each measure, with its formula and source in a disclosure."""

    name = tables.Column(verbose_name="Measure", attrs={"td": {"class": "primary"}})
    value = NumberColumn(verbose_name="Estimate", empty_values=())
    interval = NumberColumn(verbose_name="95 % interval", empty_values=())
    units = NumberColumn(empty_values=())
    raters = NumberColumn(empty_values=())
    left_out = NumberColumn(verbose_name="Excluded", empty_values=())

    class Meta:
        orderable = False
        default = MISSING
        attrs = {"class": "data-table keep-table"}
        row_attrs = {"class": lambda record: "is-fitting" if record.suits_scale else ""}

    def __init__(self, measures: Iterable[MeasureResult]) -> None:
        super().__init__(list(measures))

    def format_interval(self, low: float | None, high: float | None) -> str:
        return statistic_format.format_coefficient_interval(low, high)

    def render_name(self, record: MeasureResult) -> SafeString:
        chip = format_html(' <span class="chip">{}</span>', "fits this scale") if record.suits_scale else ""
        texts = [record.description.meaning, record.description.formula, record.description.citation]
        if record.estimate is not None:
            n_used, total = record.estimate.units, record.estimate.units + record.estimate.left_out
            texts.append(f"Units: {format_count(n_used)} of {format_count(total)}, {record.description.uses}.")
            if record.estimate.interval:
                is_percentile = record.estimate.interval.startswith("percentile")
                resamples = f", {record.estimate.resamples:,} resamples" if is_percentile else ""
                texts.append(f"Interval: {record.estimate.interval}{resamples}.")
        details = format_html_join("", "<p>{}</p>", ((text,) for text in texts))
        return format_html('<details class="more"><summary>{}{}</summary>{}</details>', record.name, chip, details)

    def render_value(self, record: MeasureResult) -> str | SafeString:
        if record.estimate is None or record.estimate.estimate is None:
            return format_html('<span class="muted why">{}</span>', record.reason)
        text = statistic_format.format_coefficient(record.estimate.estimate)
        if record.name.startswith("ICC(") and record.estimate.estimate < 0:
            return format_html('{} <span class="muted why">{}</span>', text, BELOW_ZERO)
        return text

    def render_units(self, record: MeasureResult) -> str:
        return format_count(record.estimate.units) if record.estimate else MISSING

    def render_raters(self, record: MeasureResult) -> str:
        return format_count(record.estimate.raters) if record.estimate else MISSING

    def render_left_out(self, record: MeasureResult) -> str:
        return format_count(record.estimate.left_out) if record.estimate else MISSING


@dataclass(frozen=True)
class JudgeEstimate:
    """A named estimate about the judge and people, with its meaning."""

    name: str
    estimate: AgreementEstimate
    meaning: str


class JudgeEstimateTable(EstimateTable):
    """A row for each estimate about the judge and people, with its meaning in a disclosure."""

    name = tables.Column(verbose_name="Measure", attrs={"td": {"class": "primary"}})
    value = NumberColumn(verbose_name="Estimate", empty_values=())
    interval = NumberColumn(verbose_name="95 % interval", empty_values=())
    units = NumberColumn(empty_values=())

    class Meta:
        orderable = False
        attrs = {"class": "data-table keep-table"}
        default = MISSING

    def render_name(self, record: JudgeEstimate) -> SafeString:
        method = record.estimate.interval
        interval = f"Interval: {method}." if method else ""
        return format_html(
            '<details class="more"><summary>{}</summary><p>{}</p><p>{}</p><p>{}</p></details>',
            record.name, record.meaning, record.estimate.formula, interval,
        )  # fmt: skip

    def render_value(self, record: JudgeEstimate) -> str:
        return statistic_format.format_number(record.estimate.estimate)

    def render_units(self, record: JudgeEstimate) -> str:
        return format_count(record.estimate.units)


CONCORDANCE = "Lin's concordance with the mean of the other people"
SAME = "Share of the other people with the same rating"
SAME_CHOICE = "Share of the other people with the same choice"


def list_judge_estimates(comparison: JudgeComparison, *, in_pairs: bool = False) -> list[JudgeEstimate]:
    """Return the judge's bias and slope, and its agreement with people next to the agreement among people."""
    meaning = (
        "The judge's share of wins for the first minus that of people, from −1 to 1 (Liang & Zeger 1986)."
        if in_pairs
        else "Mean difference of the judge and the mean of the people (Liang & Zeger 1986)."
    )
    estimates = [JudgeEstimate("Bias", comparison.bias, meaning)]
    if comparison.slope is not None:
        meaning = "Below 1, the judge avoids the ends of the scale (Deming 1943; Linnet 1993)."
        estimates.append(JudgeEstimate("Slope", comparison.slope, meaning))
    for standing, measure in zip(
        comparison.standings, (SAME_CHOICE,) if in_pairs else (CONCORDANCE, SAME), strict=False
    ):
        estimates += [
            JudgeEstimate(
                f"{measure}: judge",
                standing.judge,
                "Each person is left out in turn; the judge is compared with the other people.",
            ),
            JudgeEstimate(
                f"{measure}: people", standing.people, "Upper limit: each person compared with the other people."
            ),
            JudgeEstimate(
                f"{measure}: difference",
                standing.gap,
                "Judge minus people. Below 0, the judge agrees less.",
            ),
        ]
    return estimates


def list_mean_estimates(comparison: JudgeComparison, *, in_pairs: bool = False) -> list[JudgeEstimate]:
    """Return three estimates of the people's mean; for pairs, of the first answer's share of wins."""
    mean, statistic = comparison.mean, "share of wins" if in_pairs else "mean"
    return [
        JudgeEstimate(
            f"Corrected {statistic}", mean.corrected,
            f"Prediction-powered inference: the judge's {statistic} over all units, corrected by its error on the "
            f"units that people rated ({statistic_format.format_number(mean.rectifier)}); the judge's share in it is "
            f"{statistic_format.format_number(mean.judge_share)}. Angelopoulos et al. (2023), Science 382, "
            "669–674; PPI++ (2023), arXiv:2311.01453. Valid only if people rated a random sample of all units. "
            "Otherwise restrict the page to the conditions that they rated.",
        ),
        JudgeEstimate("People alone", mean.people, f"The {statistic} by people over the units that they rated."),
        JudgeEstimate("Judge alone", mean.judge, f"The judge's {statistic} over all units, including its bias."),
    ]  # fmt: skip
