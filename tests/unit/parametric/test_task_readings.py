"""What the explorer says of each task: the parameters that matter, by a rule that statsmodels confirms."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from grading_app.results.parametric.point_counts import CellCounts, PointCounts
from grading_app.results.parametric.surface_tables import read_tasks

LENGTHS, DEPTHS = (4, 8, 32), (1, 2)
ANSWERS = 60


def make_counts(right, *, guess=0.0, lengths=LENGTHS, depths=DEPTHS, conditions=(1,)):
    """Return counts of one task. right(condition, length, depth): the number of right answers of ANSWERS."""
    points = [{"length": length, "depth": depth} for length in lengths for depth in depths]
    cells = [
        CellCounts(condition, number, ANSWERS, right(condition, **params), ANSWERS, 0, 0, guess * ANSWERS, 0, 0)
        for condition in conditions
        for number, params in enumerate(points)
    ]
    columns = {name: [getattr(cell, name) for cell in cells] for name in CellCounts._fields}
    return PointCounts(["sort"] * len(points), points, [1] * len(points), columns)


def test_a_sentence_names_the_ends_of_the_parameter_that_matters():
    counts = make_counts(lambda _, length, depth: {4: 60, 8: 54, 32: 36}[length])
    (reading,) = read_tasks(counts, [1])
    assert reading.sentence == "falls with length: 1.00 at 4, .60 at 32; no difference seen with depth"


def test_the_effect_is_the_mean_over_equal_settings_with_its_standard_error():
    def right(_, length, depth):
        return {(4, 1): 58, (4, 2): 50, (32, 1): 30, (32, 2): 24}.get((length, depth), 40)

    (reading,) = read_tasks(make_counts(right), [1])
    effect = next(effect for effect in reading.effects if effect.name == "length")
    shares = {key: right(1, *key) / ANSWERS for key in ((4, 1), (4, 2), (32, 1), (32, 2))}
    assert effect.first == pytest.approx(np.mean([shares[4, 1], shares[4, 2]]))
    assert effect.last == pytest.approx(np.mean([shares[32, 1], shares[32, 2]]))
    halves = []
    for key in shares:
        low, high = proportion_confint(right(1, *key), ANSWERS, method="wilson")
        halves.append((high - low) / 2 / stats.norm.ppf(0.975))
    assert effect.se == pytest.approx(np.sqrt(np.sum(np.square(halves))) / 2, rel=1e-6)
    assert effect.matters


def test_a_difference_within_its_corrected_interval_is_not_seen():
    (reading,) = read_tasks(make_counts(lambda _, length, depth: 45 if length == 4 else 40), [1])
    assert not any(effect.matters for effect in reading.effects)
    assert reading.sentence == "no difference seen with length and depth"


def test_guessing_alone_never_falls_or_rises():
    rng = np.random.default_rng(4)
    false = 0
    for _ in range(200):
        counts = make_counts(
            lambda condition, length, depth: int(rng.binomial(ANSWERS, 0.5)), guess=0.0, conditions=(1, 2, 3)
        )
        false += any(effect.matters for reading in read_tasks(counts, [1, 2, 3]) for effect in reading.effects)
    assert false <= 20, "at most about 5 % of experiments without an effect may claim one"


def test_only_settings_with_both_values_count():
    counts = make_counts(lambda _, length, depth: 60 if length == 4 else 30)
    keep = [number for number, params in enumerate(counts.params) if (params["length"], params["depth"]) != (4, 2)]
    columns = {name: [values[at] for at in keep] for name, values in counts.cells.items()}
    partial = PointCounts(counts.tasks, counts.params, counts.items, columns)
    (reading,) = read_tasks(partial, [1])
    assert {effect.name: effect.settings for effect in reading.effects} == {"length": 1, "depth": 2}


def test_a_task_with_one_point_says_so():
    counts = make_counts(lambda _, length, depth: 30, lengths=(4,), depths=(1,))
    (reading,) = read_tasks(counts, [1])
    assert reading.sentence == "one point only"
