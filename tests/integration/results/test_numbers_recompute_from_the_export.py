"""Every number of the results equals an independent computation from the exported rows."""

import csv
import io
import math
from collections import Counter, defaultdict
from statistics import mean, stdev

import pytest
from scipy.stats import t

from grading_app.grading.scoring import grade
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.frames import load_frames
from grading_app.statistics.intervals import bounded_score_interval
from runs_app.models import Wave
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


def export_rows(experiment, table):
    text = b"".join(export_chunks(experiment, table, "csv")).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def mix_parts(*parts):
    """Return a number that depends only on the parts and varies between cells."""
    return sum(ord(letter) * (at + 3) for at, letter in enumerate("|".join(map(str, parts)))) % 97


@shared_rows
def rated():
    experiment = factories.make_experiment(
        dataset=factories.make_dataset(items=7),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=4,
    )

    for wave in (0, 1):
        for run in factories.make_runs(experiment, wave=wave):
            factories.plan_trials(run, answer=lambda *cell, run=run: make_rating(run, *cell))
    return experiment


def make_rating(run, item, dimension, sample_idx):
    chance = mix_parts(run.pk % 2, run.wave.number, item.key, dimension.name, sample_idx)
    if chance % 11 == 0:
        return factories.build_failed_fields()
    if chance % 7 == 0:
        return {"answer": "no", "rating": None, "parse_error": "no_rating_found", "truncated": chance % 2 == 0}
    return {"answer": str(chance % 7 + 1), "rating": chance % 7 + 1, "refused": chance % 13 == 0}


@shared_rows
def graded():
    experiment = factories.make_experiment(
        "graded",
        dataset=factories.make_dataset("graded-questions", 9),
        models=[factories.make_model("a"), factories.make_model("b")],
        samples=3,
        scorers=["numeric", "exact_match"],
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(
            run,
            answer=lambda item, _, index, run=run: (
                "none"
                if mix_parts(run.pk % 2, item.key, index) % 5 == 0
                else str(mix_parts(item.key, run.pk % 2) % 2 * 10**6 or item.target)
            ),
        )
    grade(experiment, by="a test")
    return experiment


def compute_by_hand(values, items):
    """Return n, mean, SD, standard error by item and interval, computed from the definitions."""
    n, centre, groups = len(values), mean(values), defaultdict(float)
    for value, item in zip(values, items, strict=True):
        groups[item] += value - centre
    k = len(groups)
    se = math.sqrt(k / (k - 1) * sum(residual**2 for residual in groups.values())) / n
    reach = t.ppf(0.975, k - 1) * se
    return n, centre, stdev(values), se, centre - reach, centre + reach


def test_ratings_have_the_mean_and_standard_error_of_the_exported_rows(rated):
    frames = load_frames(rated)
    lines = frames.lines
    assert len(lines) == 4
    exported = export_rows(rated, "trials")
    for line in lines:
        mine = [r for r in exported if r["model"] == line.condition and r["dimension"] == line.measure.key.lower()]
        scored = [row for row in mine if row["rating"]]
        expected = compute_by_hand([int(row["rating"]) for row in scored], [row["item_key"] for row in scored])
        n, mean, sd, se, *_ = expected
        ends = bounded_score_interval(mean, se, len({row["item_key"] for row in scored}), (1, 7))
        assert (line.score.n, line.score.mean, line.score.sd, line.score.se) == pytest.approx((n, mean, sd, se))
        assert (line.score.low, line.score.high) == pytest.approx(ends)
        assert line.score.missing == sum(not row["rating"] for row in mine) > 0


def test_a_wave_is_summarised_separately(rated):
    wave = Wave.objects.get(experiment=rated, number=1)
    frames = load_frames(rated, wave)
    exported = [row for row in export_rows(rated, "trials") if row["wave"] == "1" and row["rating"]]
    counts = Counter((row["model"], row["dimension"]) for row in exported)
    lines = frames.lines
    assert {(line.condition, line.measure.key.lower()): line.score.n for line in lines} == counts
    assert sum(row.trials for row in frames.outcomes) == 2 * 7 * 2 * 4


def test_distributions_count_the_exported_ratings(rated):
    frames = load_frames(rated)
    exported = Counter(
        (r["model"], r["dimension"], int(r["rating"])) for r in export_rows(rated, "trials") if r["rating"]
    )
    n_checked = Counter()
    for (condition, dimension), counts in frames.rating_counts.items():
        for rating, count in counts.items():
            n_checked[frames.labels[condition], frames.dimensions[dimension].title.lower(), rating] = count
    assert n_checked == exported


def test_outcomes_count_the_exported_trials(rated):
    frames, exported = load_frames(rated), export_rows(rated, "trials")
    for row in frames.outcomes:
        mine = [r for r in exported if r["model"] == frames.labels[row.condition]]
        done = [r for r in mine if r["status"] == "done"]
        expected = (len(mine), len(done), sum(r["status"] == "failed" for r in mine))
        assert (row.trials, row.done, row.failed) == expected
        assert row.truncated == sum(r["truncated"] == "true" for r in done) > 0
        assert (row.open, row.empty) == (0, 0)


def test_shares_and_their_errors_equal_the_exported_gradings(graded):
    frames = load_frames(graded)
    lines = frames.lines
    assert [line.measure.key for line in lines] == ["numeric", "numeric", "exact_match", "exact_match"]
    for line in lines:
        mine = [
            row
            for row in export_rows(graded, "gradings")
            if row["model"] == line.condition and row["scorer"] == line.measure.key
        ]
        scored = [row for row in mine if row["score"]]
        expected = compute_by_hand([float(row["score"]) for row in scored], [row["item_key"] for row in scored])
        assert (line.score.n, line.score.mean, line.score.se) == pytest.approx((expected[0], expected[1], expected[3]))
        assert line.score.missing == len(mine) - len(scored)
        assert line.score.low < line.score.mean < line.score.high


def test_categories_add_up_to_the_total(graded):
    for found in load_frames(graded).scores:
        for condition, whole in found.conditions.items():
            parts = [scores[condition] for scores in found.categories.values() if condition in scores]
            assert len(parts) == 2
            for name in ("n", "items", "missing"):
                assert sum(getattr(part, name) for part in parts) == getattr(whole, name)
            assert sum(part.n * part.mean for part in parts) == pytest.approx(whole.n * whole.mean)
