"""The tables of the agreement page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import django_tables2 as tables
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.text.number_format import MISSING, format_count
from grading_app.raters.raters import Rater
from grading_app.results import statistic_format
from grading_app.tables.results import NumberColumn

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import JudgeComparison, MeasureResult, RaterCoverage, RaterPair
    from grading_app.raters.reference_report import ReferenceComparison
    from grading_app.statistics.estimates import AgreementEstimate
from grading_app.statistics.known_coverage import describe_coverage

BELOW_ZERO = "below 0: ratings of one unit differ more than the units do. Report it as no reliability."


class CoverageTable(tables.Table):
    """The number of compared units that each rater rated."""

    rater = tables.Column(attrs={"td": {"class": "primary"}})
    kind = tables.Column(attrs={"td": {"class": "tight"}})
    scale = tables.Column(attrs={"td": {"class": "tight"}})
    n = NumberColumn(verbose_name="Rated")
    shared = NumberColumn(verbose_name="Units shared with others")
    mean = NumberColumn()
    sd = NumberColumn(verbose_name="SD")
    range = NumberColumn(verbose_name="Lowest to highest", empty_values=())

    class Meta:
        orderable = False
        default = MISSING

    def __init__(
        self, coverage: Iterable[RaterCoverage], raters: Mapping[str, Rater], *, in_pairs: bool = False
    ) -> None:
        self.in_pairs = in_pairs
        rows = [{"coverage": row, **_make_coverage_row(row, raters[str(row.rater)])} for row in coverage]
        super().__init__(rows, exclude=("scale", "sd", "range") if in_pairs else ())
        if in_pairs:
            self.columns["mean"].column.verbose_name = "For the first"

    def render_n(self, value: int) -> str:
        return format_count(value)

    def render_mean(self, value: float) -> str:
        return statistic_format.format_share(value) if self.in_pairs else statistic_format.format_number(value)

    def render_shared(self, value: int) -> str:
        return format_count(value)

    def render_range(self, record: dict[str, Any]) -> str:
        low, high = record["coverage"].low, record["coverage"].high
        return MISSING if low is None else f"{low:.4g} to {high:.4g}"


def _make_coverage_row(coverage: RaterCoverage, rater: Rater) -> dict[str, Any]:
    return {
        "rater": rater.label,
        "kind": rater.kind_label,
        "scale": str(rater.scale) if rater.scale else None,
        "n": coverage.n,
        "shared": coverage.shared,
        "mean": coverage.mean,
        "sd": None if coverage.sd is None else statistic_format.format_number(coverage.sd),
    }


class MeasureTable(tables.Table):
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
        text = statistic_format.format_number(record.estimate.estimate, 3)
        if record.name.startswith("ICC(") and record.estimate.estimate < 0:
            return format_html('{} <span class="muted why">{}</span>', text, BELOW_ZERO)
        return text

    def render_interval(self, record: MeasureResult) -> str | SafeString:
        return render_estimate_interval(record.estimate)

    def render_units(self, record: MeasureResult) -> str:
        return format_count(record.estimate.units) if record.estimate else MISSING

    def render_raters(self, record: MeasureResult) -> str:
        return format_count(record.estimate.raters) if record.estimate else MISSING

    def render_left_out(self, record: MeasureResult) -> str:
        return format_count(record.estimate.left_out) if record.estimate else MISSING


class PairTable(tables.Table):
    """A row for each pair of raters, on the units that both rated."""

    first = tables.Column(verbose_name="Rater", attrs={"td": {"class": "primary"}})
    second = tables.Column(verbose_name="and")
    n = NumberColumn(verbose_name="Both rated")
    same = NumberColumn(verbose_name="Same rating")
    kappa = NumberColumn(verbose_name="Kappa, quadratic")
    r = NumberColumn(verbose_name="r")
    ccc = NumberColumn(verbose_name="Concordance")
    difference = NumberColumn(verbose_name="Second minus first")

    class Meta:
        orderable = False
        default = MISSING
        attrs = {"class": "data-table keep-table"}

    def __init__(self, pairs: Iterable[RaterPair], raters: Mapping[str, Rater], *, in_pairs: bool = False) -> None:
        self.raters = raters
        super().__init__(list(pairs), exclude=("r", "ccc", "difference") if in_pairs else ())
        if in_pairs:
            self.columns["kappa"].column.verbose_name = "Kappa"
            self.columns["same"].column.verbose_name = "Same choice"

    def render_first(self, value: str) -> str:
        return self.raters[value].label

    def render_second(self, value: str) -> str:
        return self.raters[value].label

    def render_n(self, value: int) -> str:
        return format_count(value)

    def render_same(self, value: float) -> str:
        return statistic_format.format_share(value)

    def render_kappa(self, value: float) -> str:
        return statistic_format.format_number(value)

    def render_r(self, value: float) -> str:
        return statistic_format.format_coefficient(value)

    def render_ccc(self, value: float) -> str:
        return statistic_format.format_number(value)

    def render_difference(self, value: float) -> str:
        return statistic_format.format_number(value)


class ReferenceTable(tables.Table):
    """A row for each rater compared with one reference, each number with its interval."""

    rater = tables.Column(empty_values=(), attrs={"td": {"class": "primary"}})
    units = NumberColumn(empty_values=())
    bias = NumberColumn(verbose_name="Rater minus reference")
    r = NumberColumn(verbose_name="r")
    concordance = NumberColumn(verbose_name="Concordance")
    same = NumberColumn(verbose_name="Same score")

    class Meta:
        orderable = False
        default = MISSING
        attrs = {"class": "data-table keep-table"}

    def __init__(
        self, comparisons: Iterable[ReferenceComparison], raters: Mapping[str, Rater], reference: Rater
    ) -> None:
        self.raters = raters
        # The norm of an item is a mean of many people, which no rating equals.
        super().__init__(list(comparisons), exclude=("same",) if reference.kind == "norm" else ())

    def render_rater(self, record: ReferenceComparison) -> str:
        return f"mean of {record.people:,} people" if record.people else self.raters[str(record.rater)].label

    def render_units(self, record: ReferenceComparison) -> str:
        return format_count(record.bias.units)

    def render_bias(self, value: AgreementEstimate) -> str | SafeString:
        return format_with_interval(value)

    def render_r(self, value: AgreementEstimate) -> str | SafeString:
        return format_with_interval(value)

    def render_concordance(self, value: AgreementEstimate) -> str | SafeString:
        return format_with_interval(value)

    def render_same(self, value: AgreementEstimate) -> str:
        share = statistic_format.format_share(value.estimate)
        interval = statistic_format.format_share_interval(value.low, value.high)
        return share if value.low is None else f"{share} ({interval})"


def format_with_interval(estimate: AgreementEstimate) -> str | SafeString:
    """Return '0.12 (−0.05 to 0.29)', with a note if its simulated coverage is low, or only the number."""
    number = statistic_format.format_number(estimate.estimate)
    if estimate.low is None:
        return number
    note = describe_coverage(estimate.formula, estimate.clusters)
    interval = statistic_format.format_interval(estimate.low, estimate.high)
    text = f"{number} ({interval})"
    return format_html('{} <span class="muted why">{}</span>', text, note) if note else text


@dataclass(frozen=True)
class JudgeEstimate:
    """A named estimate about the judge and people, with its meaning."""

    name: str
    estimate: AgreementEstimate
    meaning: str


class JudgeEstimateTable(tables.Table):
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
        return statistic_format.format_number(record.estimate.estimate, 3)

    def render_interval(self, record: JudgeEstimate) -> str | SafeString:
        return render_estimate_interval(record.estimate)

    def render_units(self, record: JudgeEstimate) -> str:
        return format_count(record.estimate.units)


def format_estimate_interval(estimate: AgreementEstimate | None) -> str:
    return MISSING if estimate is None else statistic_format.format_interval(estimate.low, estimate.high, 3)


def render_estimate_interval(estimate: AgreementEstimate | None) -> str | SafeString:
    """Return the interval, with a note if its simulated coverage is low, or the reason why it is missing."""
    interval = format_estimate_interval(estimate)
    if estimate is None:
        return interval
    if estimate.low is None:
        return estimate.interval.removeprefix("no interval: ") or interval
    note = describe_coverage(estimate.formula, estimate.clusters)
    return format_html('{} <span class="muted why">{}</span>', interval, note) if note else interval


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
