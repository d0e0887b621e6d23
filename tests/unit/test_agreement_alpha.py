import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grading_app.statistics.agreement_coefficients import fleiss_kappa, krippendorff_alpha
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import KRIPPENDORFF, NAN, tables

LEVELS = ("nominal", "ordinal", "interval", "ratio")
levels = st.sampled_from(LEVELS)


def alpha(table, level):
    return krippendorff_alpha(Ratings.from_table(table), level).estimate


def approximate(value):
    return None if value is None else pytest.approx(value, abs=1e-9)


def compute_by_definition(table, level):
    """Return alpha by its definition, from all pairs of ratings."""
    rows = [[value for value in row if not np.isnan(value)] for row in table]
    rows = [row for row in rows if len(row) > 1]
    pooled = [value for row in rows for value in row]
    frequency = {value: pooled.count(value) for value in pooled}

    def ordinal(c, k):
        low, high = min(c, k), max(c, k)
        between = sum(count for value, count in frequency.items() if low <= value <= high)
        return (between - (frequency[c] + frequency[k]) / 2) ** 2

    distance = {
        "nominal": lambda c, k: float(c != k),
        "ordinal": ordinal,
        "interval": lambda c, k: (c - k) ** 2,
        "ratio": lambda c, k: ((c - k) / (c + k)) ** 2 if c + k else 0.0,
    }[level]
    within = sum(sum(distance(c, k) for c in row for k in row) / (len(row) - 1) for row in rows)
    expected = sum(distance(c, k) for c in pooled for k in pooled)
    return 1 - (len(pooled) - 1) * within / expected if expected else None


@pytest.mark.parametrize(("level", "published"), list(zip(LEVELS, (0.743, 0.815, 0.849, 0.797), strict=True)))
def test_krippendorffs_own_example(level, published):
    result = krippendorff_alpha(Ratings.from_table(KRIPPENDORFF), level).result()
    assert result.estimate == pytest.approx(published, abs=5e-4)
    assert (result.units, result.raters, result.ratings, result.left_out) == (11, 4, 40, 1)
    assert result.formula == f"Krippendorff's alpha, {level}"


@given(tables(), levels)
def test_alpha_equals_its_definition(table, level):
    assert alpha(table, level) == approximate(compute_by_definition(table, level))


@given(tables(), levels, st.randoms(use_true_random=False))
def test_alpha_does_not_depend_on_names_of_raters_and_units(table, level, random):
    columns, rows = list(range(table.shape[1])), list(range(table.shape[0]))
    random.shuffle(columns)
    random.shuffle(rows)
    assert alpha(table[rows][:, columns], level) == approximate(alpha(table, level))
    triples = [(f"u{row}", f"r{index}", table[row, index]) for row in rows for index in columns]
    assert krippendorff_alpha(Ratings.from_triples(triples), level).estimate == approximate(alpha(table, level))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=15), st.integers(2, 4), levels)
def test_perfect_agreement_is_one(column, raters, level):
    assume(len(set(column)) > 1)
    assert alpha([[value] * raters for value in column], level) == pytest.approx(1)


@pytest.mark.slow
@given(tables(), levels, st.integers(1, 5))
def test_units_with_fewer_than_two_ratings_do_not_change_alpha(table, level, value):
    lone = np.full((2, table.shape[1]), NAN)
    lone[1, 0] = value
    result = krippendorff_alpha(Ratings.from_table(np.vstack([table, lone])), level).result()
    plain = krippendorff_alpha(Ratings.from_table(table), level).result()
    assert result.estimate == approximate(plain.estimate)
    assert (result.units, result.left_out) == (plain.units, plain.left_out + 2)


@given(tables(), st.floats(-50, 50), st.floats(0.1, 20), st.booleans())
def test_interval_alpha_does_not_depend_on_the_unit_of_measurement(table, shift, scale, mirrored):
    scale = -scale if mirrored else scale
    assert alpha(shift + scale * table, "interval") == approximate(alpha(table, "interval"))


@given(tables(), st.lists(st.floats(0.1, 30), min_size=6, max_size=6))
def test_ordinal_alpha_depends_only_on_the_order(table, steps):
    heights = np.cumsum(steps)
    moved = np.where(np.isnan(table), NAN, heights[np.nan_to_num(table).astype(int)])
    assert alpha(moved, "ordinal") == approximate(alpha(table, "ordinal"))


@given(tables(), st.floats(0.1, 20))
def test_ratio_alpha_depends_on_the_zero_but_not_on_the_unit(table, scale):
    assert alpha(scale * table, "ratio") == approximate(alpha(table, "ratio"))


@given(tables(), st.permutations(range(6)))
def test_nominal_alpha_does_not_depend_on_the_order(table, names):
    renamed = np.where(np.isnan(table), NAN, np.array(names)[np.nan_to_num(table).astype(int)])
    assert alpha(renamed, "nominal") == approximate(alpha(table, "nominal"))


@given(tables(missing=False))
def test_nominal_alpha_is_fleiss_kappa_with_its_correction_for_few_ratings(table):
    # K. Krippendorff (2004), "Content analysis", 2nd ed., section 11.3.2: alpha = 1 - (1 - kappa) (n - 1) / n.
    kappa = fleiss_kappa(Ratings.from_table(table)).estimate
    assert alpha(table, "nominal") == approximate(
        None if kappa is None else 1 - (1 - kappa) * (table.size - 1) / table.size
    )


@given(tables(missing=False))
def test_interval_alpha_is_fleiss_kappa_with_quadratic_weights_and_the_same_correction(table):
    kappa = fleiss_kappa(Ratings.from_table(table), "quadratic").estimate
    assert alpha(table, "interval") == approximate(
        None if kappa is None else 1 - (1 - kappa) * (table.size - 1) / table.size
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("table", [[[0.1, 0.1, 0.1], [0.1, 0.1, NAN]], [[1, NAN], [NAN, 2]], [[NAN, NAN]]])
def test_without_variation_alpha_is_not_defined(table, level):
    assert alpha(table, level) is None


def test_a_ratio_scale_has_no_negative_values():
    assert alpha([[0, 0], [0, 4], [4, 4]], "ratio") == pytest.approx(1 - 5 * 2 / (2 * 3 * 3))
    with pytest.raises(ValueError, match="no negative ratings"):
        alpha([[-1, 1]], "ratio")


def test_ratings_far_from_zero_keep_their_precision():
    assert alpha(1e9 + KRIPPENDORFF, "interval") == pytest.approx(0.849, abs=5e-4)
