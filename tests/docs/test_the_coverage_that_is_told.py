"""The table of the document on points says what the stored table says."""

import re
from pathlib import Path

from runs_app.coverage import COVERAGE, GUESSES, MAXIMUM, coverage_near
from runs_app.stopping import StoppingRule, expected_cases

DOCUMENT = Path(__file__).parents[2] / "docs" / "points.md"
LINE = re.compile(r"^\| (0\.\d+) \| (\d+) \| ([\d.]+) to ([\d.]+) % \| (\d+), (\d+), (\d+) \|$", re.MULTILINE)


def test_every_simulated_setting_is_told_as_it_was_simulated():
    told = {(float(target), int(size)): tuple(rest) for target, size, *rest in LINE.findall(DOCUMENT.read_text())}
    assert set(told) == {(target, size) for target, size, _ in COVERAGE}
    for (target, size), (least, most, *cases) in told.items():
        found = coverage_near(target, size)
        rule = StoppingRule(maximum=MAXIMUM, targetci=target)
        assert (least, most) == (found.least_percent, found.most_percent)
        assert [int(n) for n in cases] == [round(expected_cases(rule, size, guess)) for guess in GUESSES]
