import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from evalsite.lib.stats import modified_wilson, normal_quantile, wilson


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
def test_wilson_contains_the_proportion_and_is_symmetric(n, data, confidence):
    successes = data.draw(st.integers(0, n))
    interval, mirrored = wilson(successes, n, confidence), wilson(n - successes, n, confidence)
    assert 0 <= interval.low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= interval.high <= 1
    assert math.isclose(interval.low, 1 - mirrored.high, abs_tol=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5), (float("nan"), 5)])
def test_wilson_rejects_invalid_proportions(successes, n):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(successes, n)


def test_a_confidence_outside_0_and_1_is_refused():
    assert normal_quantile(0.95) == pytest.approx(1.959964)
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal_quantile(95)


def test_one_and_two_successes_have_the_lower_bounds_of_brown_cai_and_dasgupta():
    # P(at least 1 | lambda) = 1 - exp(-lambda) = .05, and P(at least 2 | lambda) = 1 - exp(-lambda)(1 + lambda) = .05.
    assert modified_wilson(1, 20)[0] == pytest.approx(-math.log(0.95) / 20)
    two = modified_wilson(2, 40)[0] * 40
    assert 1 - math.exp(-two) * (1 + two) == pytest.approx(0.05)
    assert modified_wilson(19, 20)[1] == pytest.approx(1 - modified_wilson(1, 20)[0])
    for successes, n in ((0, 10), (3, 50), (4, 60), (96, 128)):
        plain = wilson(successes, n)
        assert modified_wilson(successes, n) == pytest.approx((plain.low, plain.high))


@pytest.mark.parametrize(("n", "p"), [(10, 0.985), (10, 0.99), (20, 0.005), (40, 0.998)])
def test_the_corrected_interval_covers_extreme_shares_that_wilsons_misses(n, p):
    chances = binom.pmf(range(n + 1), n, p)
    modified = sum(chances[x] for x in range(n + 1) if modified_wilson(x, n)[0] <= p <= modified_wilson(x, n)[1])
    plain = sum(chances[x] for x in range(n + 1) if wilson(x, n).low <= p <= wilson(x, n).high)
    assert plain < 0.93 < modified
