"""The coverage tables of the document on points match the stored tables."""

import re
from pathlib import Path

import pytest

from runs_app.stopping import coverage
from runs_app.stopping.coverage import COVERAGE, GUESSES, MAXIMUM, find_nearest_coverage
from runs_app.stopping.rules import StoppingRule, expect_cases

DOCUMENT = Path(__file__).parents[3] / "docs" / "parametric-tasks.md"
LINE = re.compile(r"^\| (0\.\d+) \| (\d+) \| ([\d.]+) to ([\d.]+) % \| (\d+), (\d+), (\d+) \|$", re.MULTILINE)
OF_ACCURACIES, OF_RATINGS = DOCUMENT.read_text().partition("## Points that stop early")[2].split("The same of ratings")
DOCUMENTED_SHAPES = ("within a point", "wide", "both ends")


def read_documented_coverage(text):
    return {(float(target), int(size)): tuple(rest) for target, size, *rest in LINE.findall(text)}


def test_every_documented_coverage_of_accuracies_matches_the_simulation():
    documented = read_documented_coverage(OF_ACCURACIES)
    assert set(documented) == {(target, size) for target, size, _ in COVERAGE}
    for (target, size), (least, most, *cases) in documented.items():
        found = find_nearest_coverage(target, size)
        rule = StoppingRule(maximum=MAXIMUM, targetci=target)
        assert (least, most) == (found.min_percent, found.max_percent)
        assert [int(n) for n in cases] == [round(expect_cases(rule, size, guess)) for guess in GUESSES]


def test_every_documented_coverage_of_ratings_matches_the_simulation():
    documented = read_documented_coverage(OF_RATINGS)
    assert set(documented) == set(coverage.MEAN_COVERAGE)
    for (target, size), (least, most, *items) in documented.items():
        found = coverage.find_mean_coverage(target, size, coverage.LENGTH)
        assert (least, most) == (found.min_percent, found.max_percent)
        taken = [coverage.simulate_mean(target, size, shape, points=1_000, seed=7)[1] for shape in DOCUMENTED_SHAPES]
        assert [int(n) for n in items] == pytest.approx(taken, rel=0.03)
