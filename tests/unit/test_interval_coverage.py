"""The documented coverage table matches the benchmark, and simulated intervals reach the documented coverage."""

import math
import re
from pathlib import Path

import pytest

from benchmarks.coverage import DESIGNS, ITEMS, REPETITIONS, TESTS, measure_coverage
from grading_app.statistics.known_coverage import (
    ODD_CHANGE,
    ODD_R,
    ODDS,
    RMSE,
    SHARE,
    SKEWED,
    UNEVEN,
    describe_coverage,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
CELL = r"(?:-|-?[\d.]+(?: \(\d+ none\))?)"
ROW = re.compile(
    rf"^\| (?P<name>[^|]+?) \| (?P<cells>{CELL}(?: \| {CELL}){{5}}|{CELL}(?: \| {CELL}){{2}}) \|$", re.MULTILINE
)
TABLE = {row["name"]: row["cells"].split(" | ") for row in ROW.finditer(DOCUMENT.read_text())}
SAMPLES = 200
# One or two cells of each method, where they are fast.
CELLS = [
    ("share of right answers", 10, 20),
    ("share of right answers", 40, 1),
    ("mean rating on 1 to 7", 10, 1),
    ("mean rating on 1 to 7", 40, 20),
    ("mean over points, beyond guessing", 10, 1),
    ("rated point", 10, 20),
    ("change of a share", 40, 1),
    ("change of a rating", 40, 20),
    ("judge's bias", 10, 1),
    ("Krippendorff's alpha", 10, 1),
    ("Cohen's kappa", 10, 1),
    ("Lin's concordance, Agreement", 10, 1),
    ("ICC(2,1)", 10, 1),
    ("percent agreement", 10, 1),
    ("Pearson's r, odd items", 40, 1),
    ("share of variance", 10, 20),
    ("MAE", 10, 1),
    ("RMSE", 10, 1),
]


def test_the_document_has_a_row_for_each_method():
    assert list(TABLE) == [*DESIGNS, *TESTS]


@pytest.mark.parametrize(("name", "items", "each"), CELLS)
def test_an_interval_has_the_documented_coverage(name, items, each):
    message = float(TABLE[name][ITEMS.index(items) * len(REPETITIONS) + REPETITIONS.index(each)].split()[0]) / 100
    # Four standard errors of a share of SAMPLES: the lowest of up to 20 truths lies two below its mean.
    room = 4 * math.sqrt(max(message * (1 - message), 0.03) / SAMPLES)
    assert message - room < measure_coverage(name, items, each, SAMPLES)[0] <= message + room


def test_every_interval_with_coverage_below_93_percent_has_a_note_or_a_reason():
    low = {
        name
        for name, cells in TABLE.items()
        if name in DESIGNS and any(cell != "-" and float(cell.split()[0]) < 93 for cell in cells)
    }
    assert low - set(NOTED) == set()


# For each design whose coverage falls below 93 %: the measure's name in `known_coverage`, or where a page warns.
NOTED = {
    "share of right answers": SHARE,
    "share, more answers to hard items": UNEVEN,
    "mean without a scale, skewed": SKEWED,
    "the same, by excess counts": "the Points page",
    "mean over points, beyond guessing": "the leaderboard",
    "Krippendorff's alpha": "Krippendorff's alpha",
    "Krippendorff's alpha, rare category": "Krippendorff's alpha, nominal",
    "Cohen's kappa": "Cohen's kappa",
    "Cohen's kappa, rare category": "Cohen's kappa",
    "Fleiss' kappa": "Fleiss' kappa",
    "ICC(2,1)": "ICC(2,1)",
    "Lin's concordance, Agreement": "Lin's concordance",
    "Lin's concordance, Analysis": "Lin's concordance",
    "slope of the judge": "slope of the judge",
    "judge and people": "judge: Lin's concordance",
    "limits of agreement, Agreement": "lower limit of agreement",
    "concordance with a reference": "Lin's concordance",
    "Pearson's r, odd items": ODD_R,
    "Pearson's r, skewed values": ODD_R,
    "change of a rating, odd items": ODD_CHANGE,
    "RMSE": RMSE,
    "odds ratio of a factor": ODDS,
}


@pytest.mark.parametrize(
    "name", [name for name in NOTED.values() if not name.startswith(("the Points", "the leaderboard"))]
)
def test_a_noted_measure_has_its_note_for_ten_items(name):
    assert describe_coverage(name, 10)
