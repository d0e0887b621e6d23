import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from grading_app.statistics import bootstrap as bootstrap_module
from grading_app.statistics.agreement_coefficients import (
    cohens_kappa,
    fleiss_kappa,
    kendalls_w,
    krippendorff_alpha,
    percent_agreement,
)
from grading_app.statistics.bootstrap import (
    NO_JACKKNIFE,
    NO_SPREAD,
    ONE_ITEM_DISAGREES,
    bootstrap,
    draw_kind_counts,
    group_by_item,
)
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.intervals import estimate_mean, sum_clusters
from grading_app.statistics.intraclass import FORMS, intraclass_correlation
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import KRIPPENDORFF, expand_table, tables
from tests.unit.test_agreement_kappas import COHEN

MEASURES = {
    "percent": percent_agreement,
    "fleiss": fleiss_kappa,
    "w": kendalls_w,
    "cohen": lambda ratings: cohens_kappa(ratings.select_raters(0, 1), "quadratic"),
    "lin": lambda ratings: lins_concordance(ratings.select_raters(0, 1)),
    **{level: lambda ratings, level=level: krippendorff_alpha(ratings, level) for level in ("nominal", "ordinal")},
    **{level: lambda ratings, level=level: krippendorff_alpha(ratings, level) for level in ("interval", "ratio")},
    **{form: lambda ratings, form=form: intraclass_correlation(ratings, form) for form in FORMS},
}


@given(tables(missing=False), st.sampled_from(sorted(MEASURES)), st.data())
def test_a_unit_drawn_twice_counts_as_two_units(table, name, data):
    size = len(table)
    times = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any))
    written = MEASURES[name](Ratings.from_table(np.repeat(table, times, axis=0))).estimate
    result = MEASURES[name](Ratings.from_table(table)).compute(np.array([times, np.ones(size)], dtype=float))
    expected = [
        np.nan if value is None else value for value in (written, MEASURES[name](Ratings.from_table(table)).estimate)
    ]
    assert result.tolist() == pytest.approx(expected, abs=1e-7, nan_ok=True)


def test_the_same_seed_gives_the_same_interval_in_steps_of_any_size(monkeypatch):
    coefficient = krippendorff_alpha(Ratings.from_table(KRIPPENDORFF), "ordinal")
    first, second, other = (bootstrap(coefficient, seed=seed, resamples=500) for seed in (1, 1, 2))
    assert first == second == other  # The jackknife of 11 items draws nothing.
    assert first.low < first.estimate < first.high
    assert (first.units, first.clusters, first.resamples, first.left_out) == (11, 11, 0, 1)
    assert first.interval.startswith("jackknife of 11 items, Student's t of Fisher's z")
    many = krippendorff_alpha(Ratings.from_table(list(KRIPPENDORFF) * 91), "ordinal")
    drawn = [bootstrap(many, seed=seed, resamples=200) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert (drawn[0].interval, drawn[0].resamples) == ("percentile bootstrap of 1,001 items", 200)
    monkeypatch.setattr(bootstrap_module, "MAX_CELLS_IN_MEMORY", 10_000)
    assert bootstrap(many, seed=1, resamples=200) == drawn[0]


def test_the_jackknife_of_alpha_leaves_out_one_item_at_a_time_on_fishers_scale():
    table = np.random.default_rng(4).standard_normal((12, 1)) + np.random.default_rng(5).standard_normal((12, 3))
    alpha = krippendorff_alpha(Ratings.from_table(table), "interval")
    without = np.array(
        [krippendorff_alpha(Ratings.from_table(np.delete(table, index, 0)), "interval").estimate for index in range(12)]
    )
    result = bootstrap(alpha, seed=1)
    reach = student.ppf(0.975, 11) * np.sqrt(11 * np.var(np.arctanh(without)))
    ends = np.tanh(np.arctanh(alpha.estimate) + np.array([-reach, reach]))
    assert (result.low, result.high) == (pytest.approx(ends[0]), pytest.approx(ends[1]))


@pytest.mark.parametrize("name", ["fleiss", "cohen", "nominal"])
def test_one_item_with_all_disagreement_gives_no_interval(name):
    result = bootstrap(MEASURES[name](Ratings.from_table([[1, 1], [2, 2]] * 8 + [[1, 2]])), seed=1)
    assert result.estimate < 1
    assert (result.low, result.high, result.interval) == (None, None, ONE_ITEM_DISAGREES)


@pytest.mark.parametrize(("times", "noted"), [(1, True), (10, False), (100, False)])
def test_an_interval_with_coverage_below_93_percent_has_a_note(times, noted):
    result = bootstrap(
        krippendorff_alpha(Ratings.from_table(list(KRIPPENDORFF) * times), "nominal"), seed=1, resamples=200
    )
    assert result.low is not None
    assert ("covers about" in result.interval) is noted


def test_the_bootstrap_error_of_kappa_is_close_to_its_formula():
    coefficient = cohens_kappa(Ratings.from_table(expand_table(COHEN)))
    result, formula = bootstrap(coefficient, seed=3, resamples=4000), coefficient.result()
    assert result.se == pytest.approx(formula.se, rel=0.06)
    assert (result.low, result.high) == (pytest.approx(formula.low, abs=0.02), pytest.approx(formula.high, abs=0.02))


def test_answers_to_the_same_item_are_resampled_together():
    # Fifty copies of an item's unit contain no more information than one.
    table = np.repeat(np.array([[1, 1], [2, 2], [1, 2], [2, 1], [2, 2], [1, 1], [1, 1], [2, 2]]), 50, axis=0)
    coefficient = percent_agreement(Ratings.from_table(table))
    items = {unit: unit // 50 for unit in range(400)}
    clustered, naive = bootstrap(coefficient, seed=1, items=items), bootstrap(coefficient, seed=1)
    single = bootstrap(percent_agreement(Ratings.from_table(table[::50])), seed=1)
    assert (clustered.se, clustered.low, clustered.high) == (
        pytest.approx(single.se),
        pytest.approx(single.low),
        pytest.approx(single.high),
    )
    assert clustered.se > 6 * naive.se
    assert (clustered.clusters, naive.clusters) == (8, 400)


def test_each_resample_has_as_many_items_as_the_data():
    items = {0: "a", 1: "b", 2: "a", 3: "c"}
    clusters = group_by_item(Ratings.from_table(np.ones((4, 2))), items)
    assert clusters.codes.tolist() == [0, 1, 0, 2]
    counts = np.concatenate(list(draw_kind_counts(clusters.kind_sizes, 300, 5, 4)))
    times = clusters.times(counts)
    assert times.shape == (300, 4)
    assert (times[:, 0] == times[:, 2]).all()
    assert (times[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert times.mean(axis=0) == pytest.approx(np.ones(4), abs=0.2)


def test_resamples_without_a_measure_are_counted_and_too_many_give_no_interval():
    # A resample lacks the one odd unit with probability (1 - 1/n)^n, .37 of 1,500 units, and has then one category.
    rare = bootstrap(cohens_kappa(Ratings.from_table([[1, 1]] * 1499 + [[2, 2]])), seed=1, resamples=1000)
    assert 300 < rare.degenerate < 430
    assert (rare.estimate, rare.low, rare.high, rare.interval) == (1, None, None, "")
    some = bootstrap(
        cohens_kappa(Ratings.from_table([[1, 1]] * 1497 + [[2, 2], [2, 1], [1, 2]])), seed=1, resamples=1000
    )
    assert 0 < some.degenerate < 100
    assert some.low < some.estimate < some.high


def test_a_measure_undefined_without_one_item_has_no_jackknife():
    result = bootstrap(cohens_kappa(Ratings.from_table([[1, 1]] * 19 + [[2, 2]])), seed=1)
    assert (result.estimate, result.low, result.interval) == (1, None, NO_JACKKNIFE)


def test_one_item_or_no_estimate_has_no_interval():
    ratings = Ratings.from_table([[1, 1], [1, 2]])
    result = bootstrap(percent_agreement(ratings), seed=1, items={0: "a", 1: "a"})
    assert (result.estimate, result.low, result.clusters, result.resamples) == (0.5, None, 1, 0)
    none = bootstrap(percent_agreement(Ratings.from_triples([("u", "r", 1)])), seed=1)
    assert (none.estimate, none.low, none.clusters) == (None, None, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"resamples": 50}, "100 resamples"), ({"confidence": 95}, "between 0 and 1"), ({"items": {0: 1}}, "has no item")],
)
def test_invalid_options_of_the_bootstrap_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(percent_agreement(Ratings.from_table([[1, 1], [1, 2]])), seed=1, **options)


def test_the_bootstrap_of_alpha_has_nearly_the_stated_coverage():
    # 60 units, 3 raters: the truth (of the population) is .5 for interval alpha. 150 samples: 4 errors of .95 are .07.
    draw = np.random.default_rng(2)
    samples = draw.standard_normal((150, 60, 1)) + draw.standard_normal((150, 60, 3))
    intervals = [
        bootstrap(krippendorff_alpha(Ratings.from_table(sample), "interval"), seed=1, resamples=400)
        for sample in samples
    ]
    assert 0.87 < np.mean([interval.low <= 0.5 <= interval.high for interval in intervals]) <= 1


def test_percent_agreement_has_the_interval_of_a_share():
    # Of two raters it is the mean over items of 0 or 1.
    agreed = [1.0, 0, 1, 1, 0, 1, 1, 1, 0, 1]
    result = bootstrap(percent_agreement(Ratings.from_table(np.stack([np.ones(10), agreed], axis=1))), seed=1)
    expected = estimate_mean(sum_clusters(agreed), (0, 1))
    assert (result.se, result.low, result.high) == (
        expected.se,
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )
    assert result.interval.startswith("modified Wilson")
    always = bootstrap(percent_agreement(Ratings.from_table([[1, 1]] * 10)), seed=1)
    assert (round(always.low, 3), always.high) == (0.722, 1)


@pytest.mark.parametrize("name", ["fleiss", "cohen", "lin", "nominal", "interval", "1,1", "2,1", "3,k"])
def test_raters_who_never_disagree_have_no_interval(name):
    coefficient = MEASURES[name](Ratings.from_table([[value, value] for value in (1, 2, 3, 4, 5) * 3]))
    resampled, formula = bootstrap(coefficient, seed=1), coefficient.result()
    assert resampled.estimate == pytest.approx(1)
    assert (resampled.low, resampled.high, resampled.interval) == (None, None, NO_SPREAD)
    assert (formula.low, formula.high) == (None, None)


@pytest.mark.parametrize("name", ["fleiss", "cohen"])
def test_one_unit_has_no_kappa(name):
    assert MEASURES[name](Ratings.from_table([[1, 2]])).estimate is None


@pytest.mark.parametrize("items", [8, 20])
def test_the_interval_of_alpha_over_few_items_covers_more_often_than_percentiles(items):
    draw = np.random.default_rng(2)
    samples = draw.standard_normal((200, items, 1)) + draw.standard_normal((200, items, 3))
    intervals = [
        bootstrap(krippendorff_alpha(Ratings.from_table(sample), "interval"), seed=1, resamples=100)
        for sample in samples
    ]
    covered = np.mean([interval.low <= 0.5 <= interval.high for interval in intervals])
    assert covered > 0.9 - 2 * 0.021  # .021 is the standard error of a share of .9 of 200.
