"""The tables of the agreement page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import django_tables2 as tables
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text.number_format import MISSING, format_count
from grading_app.results import statistic_format
from grading_app.statistics.known_coverage import describe_estimates_coverage
from grading_app.tables.results import NumberColumn

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import JudgeComparison, MeasureResult
    from grading_app.statistics.estimates import AgreementEstimate

BELOW_ZERO = "below 0: ratings of one unit differ more than the units do. Report it as no reliability."


@dataclass(frozen=True)
class JudgeEstimate:
    """A named estimate about the judge and people, with its meaning."""

    name: str
    estimate: AgreementEstimate
    meaning: str


class EstimateTable(tables.Table):
    """A row for each estimate of agreement, with its meaning, formula and source in a disclosure.

    of_judge: the rows are estimates about the judge and people, on the scale of the ratings; otherwise measures, which
    are coefficients. `coverage_note` says which of their intervals cover less than 95 %.
    """

    name = tables.Column(verbose_name="Measure", attrs={"td": {"class": "primary"}})
    value = NumberColumn(verbose_name="Estimate", empty_values=())
    interval = NumberColumn(verbose_name="95 % interval", empty_values=())
    units = NumberColumn(accessor="estimate__units")
    raters = NumberColumn(accessor="estimate__raters")
    left_out = NumberColumn(accessor="estimate__left_out", verbose_name="Excluded")

    class Meta:
        orderable = False
        default = MISSING
        attrs = {"class": "data-table keep-table"}
        row_attrs = {"class": lambda record: "is-fitting" if getattr(record, "suits_scale", False) else ""}

    def __init__(self, rows: Sequence[MeasureResult | JudgeEstimate], *, of_judge: bool = False) -> None:
        super().__init__(rows, exclude=("raters", "left_out") if of_judge else ())
        self.of_judge = of_judge

    @property
    def coverage_note(self) -> str:
        return describe_estimates_coverage((row.name, row.estimate) for row in self.data)

    def render_name(self, record: MeasureResult | JudgeEstimate) -> SafeString:
        estimate, chip = record.estimate, tags.EMPTY
        if isinstance(record, JudgeEstimate):
            texts = [record.meaning, record.estimate.formula]
        else:
            texts = [record.description.meaning, record.description.formula, record.description.citation]
            if record.suits_scale:
                chip = format_html(' <span class="chip">{}</span>', "fits this scale")
            if estimate is not None:
                total = estimate.units + estimate.left_out
                uses = f"{format_count(estimate.units)} of {format_count(total)}, {record.description.uses}"
                texts.append(f"Units: {uses}.")
        if estimate is not None and estimate.interval:
            is_percentile = estimate.interval.startswith("percentile") and not self.of_judge
            resamples = f", {estimate.resamples:,} resamples" if is_percentile else ""
            texts.append(f"Interval: {estimate.interval}{resamples}.")
        details = format_html_join("", "<p>{}</p>", ((text,) for text in texts))
        return format_html('<details class="more"><summary>{}{}</summary>{}</details>', record.name, chip, details)

    def render_value(self, record: MeasureResult | JudgeEstimate) -> str | SafeString:
        if isinstance(record, JudgeEstimate):
            return statistic_format.format_number(record.estimate.estimate)
        if record.estimate is None or record.estimate.estimate is None:
            return format_html('<span class="muted why">{}</span>', record.reason)
        text = statistic_format.format_coefficient(record.estimate.estimate)
        if record.name.startswith("ICC(") and record.estimate.estimate < 0:
            return format_html('{} <span class="muted why">{}</span>', text, BELOW_ZERO)
        return text

    def render_interval(self, record: MeasureResult | JudgeEstimate) -> str:
        """Return the interval, or the reason why it is missing."""
        if record.estimate is None:
            return MISSING
        format_ends = (
            statistic_format.format_interval if self.of_judge else statistic_format.format_coefficient_interval
        )
        interval = format_ends(record.estimate.low, record.estimate.high)
        return interval if interval != MISSING else record.estimate.interval.removeprefix("no interval: ") or MISSING

    def render_units(self, value: int) -> str:
        return format_count(value)

    def render_raters(self, value: int) -> str:
        return format_count(value)

    def render_left_out(self, value: int) -> str:
        return format_count(value)


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
