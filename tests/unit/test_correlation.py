import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grading_app.statistics.correlation import pearson

values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
# F. J. Anscombe (1973), "Graphs in statistical analysis", The American Statistician 27, first set.
ANSCOMBE_X = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
ANSCOMBE_Y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]


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
    assert (found.r, found.low, found.high, found.p) == (1, None, None, 0)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1])])
def test_without_variance_there_is_no_pearson(x, y):
    assert pearson(x, y) is None


def test_pairs_are_needed():
    with pytest.raises(ValueError, match="make no pairs"):
        pearson([1, 2], [1])


def test_few_pairs_have_no_interval():
    found = pearson([1, 2, 3], [1, 3, 2])
    assert found.r == pytest.approx(0.5)
    assert (found.low, found.high) == (None, None)
    assert pearson([1, 2], [1, 3]).p is None
