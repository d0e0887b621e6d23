"""The document's table of coverage is what the benchmark computes, and the intervals cover as often as it says."""

import math
import re
from pathlib import Path

import pytest

from benchmarks.coverage import ITEMS, METHODS, REPETITIONS, coverage

DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<cells>[\d.]+(?: \| [\d.-]+){5}) \|$", re.MULTILINE)
TABLE = {row["name"]: row["cells"].split(" | ") for row in ROW.finditer(DOCUMENT.read_text())}
SAMPLES = 200
# One or two cells of each method, where they are fast.
CELLS = [
    ("share of right answers", 10, 20),
    ("share of right answers", 40, 1),
    ("mean rating on 1 to 7", 10, 1),
    ("mean rating on 1 to 7", 40, 20),
    ("rated point", 10, 20),
    ("change of a share", 40, 1),
    ("change of a rating", 40, 20),
    ("judge's bias", 10, 1),
    ("Krippendorff's alpha", 10, 1),
    ("Cohen's kappa", 10, 1),
    ("Lin's concordance", 10, 1),
    ("Pearson's r", 10, 1),
]


def test_the_document_has_a_row_for_each_method():
    assert list(TABLE) == list(METHODS)


@pytest.mark.parametrize(("name", "items", "each"), CELLS)
def test_an_interval_covers_as_often_as_the_document_says(name, items, each):
    told = float(TABLE[name][ITEMS.index(items) * len(REPETITIONS) + REPETITIONS.index(each)]) / 100
    # Four standard errors of a share of SAMPLES: the lowest of up to 20 truths lies two below its mean.
    room = 4 * math.sqrt(max(told * (1 - told), 0.03) / SAMPLES)
    assert told - room < coverage(name, items, each, SAMPLES) <= told + room
