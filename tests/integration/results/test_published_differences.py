"""Differences of two models' recorded ratings from the norms equal the published values.

The recordings are not part of the checkout. These tests are skipped if they are missing.
"""

import json

import pytest
from django.core.management import call_command

from tests.factories.recordings import make_rated_photographs

pytestmark = pytest.mark.django_db

PUBLISHED = {
    ("gemma", "valence"): (40, -0.067309, -0.552045, 0.584068, 0.949769),
    ("gemma", "arousal"): (40, 0.057389, 0.273621, 0.785820, 0.817754),
    ("qwen", "valence"): (39, 0.001383, 0.012627, 0.989992, 0.935366),
    ("qwen", "arousal"): (39, 0.074837, 0.333986, 0.740226, 0.762290),
}


def read_rows(table, dimension, path):
    options = ["--measure", dimension, "--table", table, "--format", "json", "--out", str(path)]
    call_command("analyse", "photographs", *options)
    return {row["condition"]: row for row in json.loads(path.read_text())["rows"]}


@pytest.mark.slow
def test_differences_and_correlations_with_the_norms_match_the_publication(tmp_path):
    make_rated_photographs()
    for dimension in ("valence", "arousal"):
        differences = read_rows("norm_differences", dimension, tmp_path / "differences.json")
        agreement = read_rows("norm_agreement", dimension, tmp_path / "agreement.json")
        for model in ("gemma", "qwen"):
            items, difference, t, p, r = PUBLISHED[model, dimension]
            row = differences[model]
            assert row["items"] == items
            assert [row["difference"], row["t"], row["p"]] == pytest.approx([difference, t, p], abs=1e-6)
            assert agreement[model]["r"] == pytest.approx(r, abs=1e-6)
