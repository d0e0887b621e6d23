"""The numbers of the agreement page stay on their scale, and numbers of too few units are refused with a reason."""

import numpy as np
import pytest

from grading_app.results.figures.norms import NormPanel
from grading_app.results.frames import NormPair, RatedDimension
from grading_app.results.raters.agreement_report import compute_agreement, restrict_to_scale
from grading_app.results.raters.agreement_tables import BELOW_ZERO, make_measure_table
from grading_app.statistics.correlation import JACKKNIFE, pearson
from grading_app.statistics.intervals import AgreementEstimate, estimate_mean, sum_clusters
from grading_app.statistics.intraclass import intraclass_correlation
from grading_app.statistics.ratings import Ratings


def build_ratings(values, raters):
    result = np.array(values, dtype=float)
    return Ratings(result, tuple(range(len(result))), tuple(raters))


def compute_report(values, raters, *, scale=None, people=(), judge=None):
    return compute_agreement(
        build_ratings(values, raters), raters=list(raters), pair=None, judge=judge, people=list(people), scale=scale
    )


def test_the_share_that_people_would_give_stays_within_0_and_1():
    """People's scores of eight answers, one of them 0; the judge says 1 of everything."""
    values = [[1, 1]] * 7 + [[1, 0]] + [[1, np.nan]] * 12
    mean = compute_report(values, ("judge", "p"), scale=(0.0, 1.0), people=("p",), judge="judge").judge_comparison.mean
    for interval in (mean.people, mean.corrected):
        assert 0 <= interval.low < interval.estimate < interval.high <= 1


def test_a_bias_stays_within_the_differences_of_the_scale():
    """Student's interval of six differences of 6 or 5 would end above 6."""
    values = [[7, 1]] * 5 + [[7, 2]]
    bias = compute_report(values, ("judge", "p"), scale=(1.0, 7.0), people=("p",), judge="judge").judge_comparison.bias
    assert compute_report(values, ("judge", "p"), people=("p",), judge="judge").judge_comparison.bias.high > 6
    assert -6 <= bias.low < bias.estimate < bias.high <= 6


def test_an_interval_within_the_scale_is_not_changed():
    inside = AgreementEstimate("mean", 4.0, 10, 1, 10, se=0.2, low=3.5, high=4.5, clusters=10)
    assert restrict_to_scale(inside, (1.0, 7.0), 10) == inside
    beside = AgreementEstimate("mean", 7.2, 10, 1, 10, se=0.2, low=6.8, high=7.6, clusters=10)
    result = restrict_to_scale(beside, (1.0, 7.0), 10)
    assert (result.estimate, result.high) == (7, 7)
    assert result.low < 7


def test_one_unit_gives_no_kappa_and_a_reason():
    result = compute_report([[3, 5], [4, np.nan], [np.nan, 2]], ("a", "b"))
    lines = {line.name: line for line in result.measures}
    for name in ("Cohen's kappa", "Fleiss' kappa", "Krippendorff's alpha, ordinal", "Lin's concordance"):
        assert lines[name].estimate.estimate is None
        assert lines[name].reason == "only 1 of 3 units can be used, but two are needed"
    assert lines["Percent agreement"].estimate.estimate == 0
    (pair,) = result.pairs
    assert (pair.n, pair.kappa) == (1, None)


def test_a_negative_icc_is_explained():
    values = [[1, 7, 4], [7, 1, 5], [4, 7, 1], [1, 4, 7]]
    icc = intraclass_correlation(Ratings.from_table(values), "1,k").estimate
    assert icc < 0
    table = make_measure_table(compute_report(values, "abc").measures)
    rows = {row["name"]: row for row in table.rows}
    assert rows["ICC(1,k)"]["value"] == icc
    assert BELOW_ZERO in rows["ICC(1,k)"]["remark"]
    assert BELOW_ZERO not in str(rows["Percent agreement"]["remark"])


def build_panel(models, humans):
    pairs = [NormPair(1, 1, str(index), 1, *means) for index, means in enumerate(zip(models, humans, strict=True))]
    return NormPanel("small", RatedDimension("Valence", 1, 7), pairs)


@pytest.mark.parametrize(
    ("n", "note"),
    [(1, "r: too few items, n = 1"), (2, "r: too few items, n = 2"), (3, "n = 3, no interval")],
)
def test_r_over_few_items_has_a_note(n, note):
    assert note in build_panel([1.0, 3.0, 2.0][:n], [2.0, 4.0, 5.0][:n]).r_text


def test_a_reference_has_the_same_correlation_as_all_other_pages():
    """Nine pairs near a line and an odd one: Fisher's interval would be narrower than the jackknife's."""
    model, people = (
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 4.0, 2.0, 1.0],
        [1.1, 2.3, 2.8, 4.2, 4.9, 6.1, 6.8, 3.7, 2.2, 6.0],
    )
    ratings = build_ratings(list(zip(model, people, strict=True)), ("model", "norms"))
    (line,) = compute_agreement(
        ratings, raters=["model"], pair=None, judge=None, people=[], references=["norms"], scale=(1.0, 7.0)
    ).references
    expected = pearson(model, people)
    correlation = line.r
    assert (correlation.estimate, correlation.low, correlation.high) == pytest.approx(
        (expected.r, expected.low, expected.high)
    )
    assert correlation.interval == expected.method == JACKKNIFE


def test_raters_against_a_decision_have_shares_and_differences_on_the_scale():
    """Of 12 answers, all decided as 1, the judge gave 1 to two: Student's difference would end below -1."""
    ratings = build_ratings([[1, 1]] * 2 + [[0, 1]] * 10, ("judge", "decided"))
    (line,) = compute_agreement(
        ratings, raters=["judge"], pair=None, judge=None, people=[], references=["decided"], scale=(0.0, 1.0)
    ).references
    assert -1 <= line.bias.low < line.bias.estimate == pytest.approx(-10 / 12)
    expected = estimate_mean(sum_clusters([1.0] * 2 + [0.0] * 10), (0, 1))
    assert (line.same.low, line.same.high) == pytest.approx((expected.low, expected.high))
    assert (line.r.estimate, line.concordance.estimate) == (None, None)
