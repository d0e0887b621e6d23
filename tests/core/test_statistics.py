import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grading_app.analysis.statistics import (
    clustered_mean,
    describe,
    detectable_effect,
    normal_quantile,
    pearson,
    spearman,
    wilson,
)
from tests.core.realdata import csv_rows

values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
# F. J. Anscombe (1973), "Graphs in statistical analysis", The American Statistician 27, first set.
ANSCOMBE_X = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
ANSCOMBE_Y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]


def test_wilson_gives_the_published_center_and_margin():
    interval = wilson(96, 128)
    assert round(interval.center, 5) == 0.74272
    assert round(interval.margin, 5) == 0.07427


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # R. G. Newcombe (1998), Statistics in Medicine 17, 857-872, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_newcombes_intervals(successes, n, low, high):
    interval = wilson(successes, n)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@given(st.integers(1, 500), st.data(), st.floats(0.5, 0.999))
def test_wilson_holds_the_proportion_and_is_symmetric(n, data, confidence):
    successes = data.draw(st.integers(0, n))
    interval, mirrored = wilson(successes, n, confidence), wilson(n - successes, n, confidence)
    assert 0 <= interval.low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= interval.high <= 1
    assert math.isclose(interval.low, 1 - mirrored.high, abs_tol=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5), (float("nan"), 5)])
def test_wilson_refuses_what_is_no_proportion(successes, n):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(successes, n)


def test_a_confidence_is_a_share():
    assert normal_quantile(0.95) == pytest.approx(1.959964)
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal_quantile(95)


def test_description_by_hand():
    summary = describe([2, 4, 4, 4, 5, 5, 7, 9])
    assert (summary.n, summary.mean) == (8, 5)
    assert summary.sd == pytest.approx(math.sqrt(32 / 7))
    assert describe([3.0]).sd is None
    assert describe([]) is None


def test_pearson_gives_anscombes_correlation_and_its_interval():
    found = pearson(ANSCOMBE_X, ANSCOMBE_Y)
    assert found.r == pytest.approx(0.81642, abs=5e-6)
    # As R's cor.test prints it for the same data.
    assert (found.low, found.high) == (pytest.approx(0.4243912, abs=1e-7), pytest.approx(0.9506933, abs=1e-7))
    assert found.p == pytest.approx(0.00217, abs=5e-6)


@given(st.lists(st.tuples(values, values), min_size=4, max_size=30))
def test_pearson_agrees_with_the_library(pairs):
    from scipy.stats import pearsonr

    x, y = (list(column) for column in zip(*pairs, strict=True))
    assume(max(x) - min(x) > 1 and max(y) - min(y) > 1)
    found, library = pearson(x, y), pearsonr(x, y)
    assert found.r == pytest.approx(library.statistic, abs=1e-6)
    if abs(found.r) < 0.999:
        interval = library.confidence_interval()
        assert (found.low, found.high) == (
            pytest.approx(interval.low, abs=1e-4),
            pytest.approx(interval.high, abs=1e-4),
        )
        assert found.p == pytest.approx(library.pvalue, abs=1e-6)


def test_a_perfect_line_has_no_interval_around_it():
    found = pearson([1, 2, 3, 4], [10, 20, 30, 40])
    assert (found.r, found.low, found.high, found.p) == (1, 1, 1, 0)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1])])
@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_without_variance_there_is_no_correlation(correlation, x, y):
    assert correlation(x, y) is None


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_pairs_are_needed(correlation):
    with pytest.raises(ValueError, match="make no pairs"):
        correlation([1, 2], [1])


def test_few_pairs_have_no_interval():
    found = pearson([1, 2, 3], [1, 3, 2])
    assert found.r == pytest.approx(0.5)
    assert (found.low, found.high) == (None, None)
    assert pearson([1, 2], [1, 3]).p is None


def test_spearman_by_hand():
    # Differences of ranks 1 to 5 are 1, -1, 0, 1, -1: 1 - 6 * 4 / (5 * 24) = .8; the interval is widened by sqrt(1.32).
    found = spearman([10, 20, 30, 40, 50], [2, 1, 3, 5, 4])
    reach = 1.959964 * math.sqrt(1.32 / 2)
    assert found.r == pytest.approx(0.8)
    assert found.low == pytest.approx(math.tanh(math.atanh(0.8) - reach), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=30))
def test_spearman_with_ties_agrees_with_the_library(pairs):
    from scipy.stats import spearmanr

    x, y = (list(column) for column in zip(*pairs, strict=True))
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert spearman(x, y).r == pytest.approx(spearmanr(x, y).statistic, abs=1e-9)


def test_clustered_error_by_hand():
    # Mean 4. Residual sums of the clusters: a (1-4)+(3-4) = -4, b (5-4) = 1, c (4-4)+(7-4) = 3. 16 + 1 + 9 = 26.
    # se^2 = 3/2 * 26 / 5^2 = 1.56; t(.975, 2) = 4.302653.
    found = clustered_mean([1, 3, 5, 4, 7], list("aabcc"))
    assert (found.mean, found.clusters, found.n) == (4, 3, 5)
    assert found.se == pytest.approx(math.sqrt(1.56))
    assert found.high - found.mean == pytest.approx(4.302653 * math.sqrt(1.56), abs=1e-5)
    assert found.naive_se == pytest.approx(math.sqrt(20 / 4 / 5))


@given(st.lists(values, min_size=2, max_size=20))
def test_clusters_of_one_are_independent_values(sample):
    found = clustered_mean(sample, range(len(sample)))
    assert found.se == pytest.approx(found.naive_se, abs=1e-6)


@given(st.lists(st.lists(values, min_size=3, max_size=3), min_size=2, max_size=12))
def test_equal_clusters_give_the_error_of_their_means(groups):
    flat = [value for group in groups for value in group]
    means = describe([sum(group) / 3 for group in groups])
    found = clustered_mean(flat, [at for at, group in enumerate(groups) for _ in group])
    assert found.se == pytest.approx(means.sd / math.sqrt(len(groups)), rel=1e-6, abs=1e-6)


def test_one_cluster_has_a_mean_and_no_error():
    found = clustered_mean([1, 2], ["a", "a"])
    assert (found.mean, found.se, found.low, found.inflation) == (1.5, None, None, None)
    assert clustered_mean([], []) is None
    with pytest.raises(ValueError, match="2 values and 1 clusters"):
        clustered_mean([1, 2], ["a"])


def test_a_paired_design_needs_as_many_items_as_the_tables_say():
    # Cohen's d of .5 at alpha .05, two-sided, takes 34 pairs for a power of .80 and 54 for .95.
    assert detectable_effect(34, 1, 0, 1) < 0.5 < detectable_effect(33, 1, 0, 1)
    assert detectable_effect(54, 1, 0, 1, power=0.95) < 0.5 < detectable_effect(53, 1, 0, 1, power=0.95)


def test_a_detectable_effect_is_detected_as_often_as_promised():
    import numpy as np
    from scipy.stats import t

    items, samples, sd_within, sd_between, trials = 12, 3, 1.5, 0.7, 6000
    effect = detectable_effect(items, samples, sd_within, sd_between)
    draw = np.random.default_rng(20)
    true = effect + sd_between * draw.standard_normal((trials, items))
    noise = sd_within * draw.standard_normal((2, trials, items, samples)).mean(axis=3)
    difference = true + noise[0] - noise[1]
    statistic = difference.mean(axis=1) / (difference.std(axis=1, ddof=1) / math.sqrt(items))
    detected = np.mean(np.abs(statistic) > t.ppf(0.975, items - 1))
    assert detected == pytest.approx(0.8, abs=0.02)  # Four standard errors of 6,000 trials.


@given(st.integers(2, 300), st.integers(1, 50), st.floats(0, 5), st.floats(0.01, 5))
def test_more_items_beat_more_repetitions(items, samples, sd_within, sd_between):
    base = detectable_effect(items, samples, sd_within, sd_between)
    more_items = detectable_effect(2 * items, samples, sd_within, sd_between)
    more_samples = detectable_effect(items, 2 * samples, sd_within, sd_between)
    assert more_items < more_samples <= base + 1e-12


@pytest.mark.parametrize(
    "design", [(1, 5, 1, 1), (5, 0, 1, 1), (5, 5, -1, 1), (5, 5, 1, 1, 0.9), (5, 5, 1, 1, 0.05, 1)]
)
def test_an_impossible_design_is_refused(design):
    with pytest.raises(ValueError, match="a design has"):
        detectable_effect(*design)


def test_recorded_ratings_of_one_image_go_together():
    rows = [row for row in csv_rows("uniform40-trials-gemma.csv") if row["dimension"] == "valence"]
    found = clustered_mean([int(row["rating"]) for row in rows], [row["image_id"] for row in rows])
    assert (found.n, found.clusters) == (800, 40)
    # Twenty answers that never differ would inflate by sqrt(20) = 4.47, and by sqrt(40/39) for the few clusters.
    assert 4.3 < found.inflation < 4.53
