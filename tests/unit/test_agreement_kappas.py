import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grading_app.statistics.agreement_coefficients import (
    cohens_kappa,
    confusion_matrix,
    fleiss_kappa,
    percent_agreement,
)
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import DIAGNOSES, KRIPPENDORFF, NAN, expand_table, tables

# J. Cohen (1960), Educational and Psychological Measurement 20, 37-46, table 2, as frequencies of 200 (also Cohen 1968,
# table 1): personality disorder, neurosis, psychosis.
COHEN = [[88, 10, 2], [14, 40, 6], [18, 10, 12]]
# J. L. Fleiss, J. Cohen & B. S. Everitt (1969), Psychological Bulletin 72, 323-327, tables 1 and 2, as frequencies.
FLEISS_COHEN_EVERITT = [[106, 10, 4], [22, 28, 10], [2, 12, 6]]
DIAGNOSED = Ratings.from_table([[int(code) for code in row] for row in DIAGNOSES])


def test_cohens_own_example():
    result = cohens_kappa(Ratings.from_table(expand_table(COHEN))).result()
    assert result.estimate == pytest.approx(0.492, abs=5e-4)
    assert (result.units, result.raters, result.ratings, result.left_out) == (200, 2, 400, 0)
    assert result.formula == "Cohen's kappa"


def test_the_large_sample_variance_of_fleiss_cohen_and_everitt():
    result = cohens_kappa(Ratings.from_table(expand_table(FLEISS_COHEN_EVERITT))).result()
    assert result.estimate == pytest.approx(0.429, abs=5e-4)
    assert result.se**2 == pytest.approx(0.002885, abs=5e-7)
    assert (result.low, result.high) == (
        pytest.approx(result.estimate - 1.959964 * result.se, abs=1e-6),
        pytest.approx(result.estimate + 1.959964 * result.se, abs=1e-6),
    )
    assert "Fleiss, Cohen & Everitt 1969" in result.interval


def test_weighted_kappas_by_hand():
    # Of two units in three categories: 0 against 1, and 2 against 2. Observed: linear 1/2, quadratic 1/2.
    # Expected, shares (1/2, 0, 1/2) against (0, 1/2, 1/2): linear (1 + 2 + 1 + 0)/4 = 1, quadratic (1 + 4 + 1)/4 = 1.5.
    ratings = Ratings.from_table([[0, 1], [2, 2]])
    assert cohens_kappa(ratings, "linear").estimate == pytest.approx(1 - 0.5 / 1)
    assert cohens_kappa(ratings, "quadratic").estimate == pytest.approx(1 - 0.5 / 1.5)
    assert cohens_kappa(ratings).estimate == pytest.approx(1 - 0.5 / 0.75)


def test_an_unused_category_keeps_the_distance_of_its_neighbours():
    # Of 1, 2 and 5 on a scale of five, 2 and 5 are three steps apart.
    near, far = Ratings.from_table([[1, 1], [2, 1], [5, 5]]), Ratings.from_table([[1, 1], [2, 1], [3, 3]])
    assert cohens_kappa(near, "linear").estimate > cohens_kappa(far, "linear").estimate


def test_units_with_a_missing_rating_are_counted_separately():
    result = cohens_kappa(Ratings.from_table([[1, 1], [2, NAN], [2, 2], [1, 2]])).result()
    assert (result.units, result.left_out, result.ratings) == (3, 1, 6)


@pytest.mark.parametrize("table", [[[1, 1], [1, 1]], [[NAN, 1], [1, NAN]]])
def test_without_variation_kappa_is_not_defined(table):
    result = cohens_kappa(Ratings.from_table(table)).result()
    assert (result.estimate, result.se, result.low, result.high) == (None, None, None, None)


@pytest.mark.parametrize(
    ("table", "weights"),
    [
        ([[0, 1], [0, 1], [1, 2]], "linear"),
        ([[0, 2], [1, 1], [1, 2]], "linear"),
        ([[0, 2], [2, 1], [2, 1]], "quadratic"),
    ],
)
def test_a_variance_from_rounding_alone_gives_no_interval(table, weights):
    """Otherwise the interval would be about 1e-8 wide."""
    result = cohens_kappa(Ratings.from_table(table), weights).result()
    assert result.estimate is not None
    assert (result.se, result.low, result.high) == (None, None, None)


def test_cohens_kappa_needs_two_raters():
    with pytest.raises(ValueError, match="two raters, not 3"):
        cohens_kappa(Ratings.from_table([[1, 2, 3]]))


@given(tables(raters=(2, 2)), st.sampled_from(["none", "linear", "quadratic"]), st.permutations(range(12)))
def test_kappa_does_not_depend_on_the_order_of_raters_and_units(table, weights, order):
    shuffled = table[[index for index in order if index < len(table)]]
    expected = cohens_kappa(Ratings.from_table(table), weights).result()
    for other in (shuffled, table[:, ::-1]):
        result = cohens_kappa(Ratings.from_table(other), weights).result()
        assert (result.estimate, result.se) == (
            pytest.approx(expected.estimate, abs=1e-9),
            pytest.approx(expected.se, abs=1e-6),
        )


@given(st.lists(st.integers(1, 5), min_size=2, max_size=20), st.sampled_from(["none", "linear", "quadratic"]))
def test_perfect_agreement_is_one(column, weights):
    assume(len(set(column)) > 1)
    ratings = Ratings.from_table([[value, value] for value in column])
    result = cohens_kappa(ratings, weights).result()
    assert (result.estimate, result.low, result.high) == (1, None, None)  # Not 1 to 1: other units may differ.
    assert fleiss_kappa(ratings).estimate == pytest.approx(1)
    assert percent_agreement(ratings).estimate == 1


@given(st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=2), min_size=2, max_size=2))
def test_weights_do_not_change_the_kappa_of_two_categories(counts):
    ratings = Ratings.from_table(expand_table(counts))
    plain, weighted = cohens_kappa(ratings).result(), cohens_kappa(ratings, "quadratic").result()
    assert (plain.estimate, plain.se) == (pytest.approx(weighted.estimate), pytest.approx(weighted.se))


def test_the_interval_of_kappa_has_the_stated_coverage():
    # 400 samples of 150 units from the shares of Cohen's example; 4 standard errors of .95 are .044.
    shares, truth = np.array(COHEN).ravel() / 200, 0.4915254
    draws = np.random.default_rng(4).multinomial(150, shares, size=400).reshape(400, 3, 3)
    intervals = [cohens_kappa(Ratings.from_table(expand_table(counts.tolist()))).result() for counts in draws]
    assert np.mean([interval.low <= truth <= interval.high for interval in intervals]) == pytest.approx(0.95, abs=0.044)


def test_fleiss_psychiatrists():
    result = fleiss_kappa(DIAGNOSED).result()
    assert result.estimate == pytest.approx(0.430, abs=5e-4)
    assert (result.units, result.raters, result.ratings) == (30, 6, 180)
    assert percent_agreement(DIAGNOSED).estimate == pytest.approx(0.556, abs=5e-4)


def test_raters_can_differ_between_units_but_their_number_cannot():
    table = [[1, 1, NAN], [NAN, 2, 2], [1, NAN, 2], [NAN, NAN, NAN]]
    result = fleiss_kappa(Ratings.from_table(table)).result()
    # P = 2/3; half of the ratings are 1 and half 2: P_e = 1/2.
    assert result.estimate == pytest.approx((2 / 3 - 1 / 2) / (1 / 2))
    assert (result.units, result.left_out) == (3, 1)


# As K. L. Gwet's package irrCAC (4th ed. of the "Handbook of inter-rater reliability", 2014) prints for these ratings.
@pytest.mark.parametrize(("weights", "kappa"), [("none", 0.761), ("linear", 0.818), ("quadratic", 0.865)])
def test_fleiss_kappa_with_missing_ratings_follows_gwet(weights, kappa):
    result = fleiss_kappa(Ratings.from_table(KRIPPENDORFF), weights).result()
    assert result.estimate == pytest.approx(kappa, abs=5.1e-4)
    assert (result.units, result.raters, result.ratings, result.left_out) == (12, 4, 41, 0)


# Gwet's abstractors (100 pregnant women, two raters) and diagnoses (223 patients, two methods), with Scott's pi, and
# Cohen's kappa and its standard error, as irrCAC prints them.
ABSTRACTORS = [[13, 0, 0], [0, 20, 7], [0, 4, 56]]
PATIENTS = [[40, 6, 4, 15], [4, 25, 1, 5], [4, 2, 21, 9], [17, 13, 12, 45]]


@pytest.mark.parametrize(
    ("counts", "weights", "pi", "kappa", "se"),
    [
        (ABSTRACTORS, "none", 0.7962, 0.7964, 0.0589),
        (ABSTRACTORS, "linear", 0.843, 0.843, None),
        (ABSTRACTORS, "quadratic", 0.892, 0.892, None),
        (PATIENTS, "none", 0.430, 0.432, 0.046),
        (PATIENTS, "linear", 0.406, 0.407, 0.053),
        (PATIENTS, "quadratic", 0.382, 0.383, 0.066),
    ],
)
def test_gwets_tables_of_two_raters(counts, weights, pi, kappa, se):
    ratings = Ratings.from_table(expand_table(counts))
    assert fleiss_kappa(ratings, weights).estimate == pytest.approx(pi, abs=5.1e-4)
    result = cohens_kappa(ratings, weights).result()
    assert result.estimate == pytest.approx(kappa, abs=5.1e-4)
    if se is not None:
        assert result.se == pytest.approx(se, abs=6e-4)


@given(tables(missing=False))
def test_gwets_kappa_of_a_complete_table_equals_fleiss_kappa(table):
    counts = np.array([[(row == category).sum() for category in np.unique(table)] for row in table])
    units, raters = table.shape
    agreed = ((counts**2).sum(axis=1) - raters).mean() / (raters * (raters - 1))
    by_chance = ((counts.sum(axis=0) / (units * raters)) ** 2).sum()
    result = fleiss_kappa(Ratings.from_table(table)).estimate
    assert result == (pytest.approx((agreed - by_chance) / (1 - by_chance)) if by_chance < 1 else None)


@given(tables())
def test_weights_do_not_change_fleiss_kappa_of_two_categories(table):
    two = np.where(np.isnan(table), NAN, np.minimum(np.nan_to_num(table), 2))
    plain, linear, quadratic = (
        fleiss_kappa(Ratings.from_table(two), weights).estimate for weights in ("none", "linear", "quadratic")
    )
    assert linear == quadratic == (None if plain is None else pytest.approx(plain))


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_raters_without_shared_units_or_variation_have_no_fleiss_kappa(weights):
    for table in ([[1, NAN], [NAN, 2]], [[3, 3], [3, 3]], [[NAN, NAN]]):
        assert fleiss_kappa(Ratings.from_table(table), weights).estimate is None


@pytest.mark.slow
@given(tables(missing=False), st.randoms(use_true_random=False))
def test_fleiss_kappa_does_not_depend_on_the_identity_of_raters(table, random):
    shuffled = np.array([random.sample(row, len(row)) for row in table.tolist()])
    assert fleiss_kappa(Ratings.from_table(shuffled)).estimate == pytest.approx(
        fleiss_kappa(Ratings.from_table(table)).estimate
    )


def test_percent_agreement_by_hand():
    # 3 of 3 pairs, 1 of 3, 0 of 1; a unit with one rating has no pair.
    result = percent_agreement(Ratings.from_table([[1, 1, 1], [1, 1, 2], [1, NAN, 2], [NAN, 3, NAN]])).result()
    assert result.estimate == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert (result.units, result.left_out) == (3, 1)


def test_measures_without_variance_or_pairs_are_undefined():
    assert percent_agreement(Ratings.from_table([[1, NAN]])).estimate is None
    assert fleiss_kappa(Ratings.from_table([[NAN, NAN]])).estimate is None
    assert fleiss_kappa(Ratings.from_table([[1, 1], [1, 1]])).estimate is None


def test_a_confusion_matrix_names_its_categories():
    ratings = Ratings.from_triples(
        [
            (1, "a", "no"),
            (1, "b", "yes"),
            (2, "a", "yes"),
            (2, "b", "yes"),
            (3, "a", "no"),
            (4, "a", "no"),
            (4, "b", "no"),
        ],
        labels=["yes", "perhaps", "no"],
    )
    result = confusion_matrix(ratings, "a", "b")
    assert (result.categories, result.counts) == (("yes", "no"), ((1, 0), (1, 1)))
    assert (result.units, result.left_out, result.agreed) == (3, 1, 2)


@given(tables(raters=(2, 2)))
def test_a_confusion_matrix_counts_every_unit_once(table):
    result = confusion_matrix(Ratings.from_table(table), 0, 1)
    assert sum(map(sum, result.counts)) == result.units == len(table) - result.left_out
    assert result.agreed == np.sum(table[:, 0] == table[:, 1])
    assert math.isclose(
        result.agreed, result.units * (percent_agreement(Ratings.from_table(table)).estimate or 0), abs_tol=1e-9
    )
