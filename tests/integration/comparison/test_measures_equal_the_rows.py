"""Measures computed from database sums equal the pure measures on the single exported rows."""

import csv
import io
import random
from dataclasses import astuple

import pytest
from django.http import QueryDict

from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.raters.agreement_cache import assign_roles, compare_raters
from grading_app.results.raters.agreement_report import compute_agreement
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.raters.unit_counts import load_unit_counts
from grading_app.statistics.ratings import Ratings
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric

pytestmark = pytest.mark.django_db


def make_random_grades(seed, raters=3):
    draw = random.Random(seed)
    experiment, rubric = make_answered_experiment(items=7, samples=4), make_scale_rubric()
    for at in range(raters):
        make_gradings(
            experiment, f"judge-{'x' * at}", lambda trial: draw.choice([None, 1, 2, 2, 1 / 3, 5]), rubric=rubric
        )
    return experiment


def get_numbers(record):
    return [value for value in astuple(record) if isinstance(value, (int, float))]


@pytest.mark.parametrize(("seed", "raters"), [(1, 2), (2, 3), (3, 4)])
def test_every_measure_equals_the_pure_function_on_the_rows(seed, raters):
    experiment = make_random_grades(seed, raters)
    selection = RatingSelectionForm(QueryDict(""), experiment).get_selection()
    roles = assign_roles(selection, {})
    report = compare_raters(selection, roles, load_unit_counts(selection)).report
    keys = [rater.key for rater in selection.raters]
    names = dict(experiment.grade_conditions.values_list("grade_condition_id", "pk"))
    exported = csv.DictReader(io.StringIO(b"".join(export_chunks(experiment, "gradings", "csv")).decode(), newline=""))
    scored = sorted((row for row in exported if row["score"]), key=lambda row: int(row["trial_id"]))
    single = Ratings.from_triples(
        (row["trial_id"], f"g{names[row['grade_condition_id']]}", float(row["score"])) for row in scored
    )
    expected = compute_agreement(single, raters=keys, pair=(keys[0], keys[1]), judge=None, people=[])
    assert [(one.name, one.reason) for one in report.measures] == [(one.name, one.reason) for one in expected.measures]
    for one, other in zip(report.measures, expected.measures, strict=True):
        if one.estimate is not None:
            assert one.estimate.estimate == pytest.approx(other.estimate.estimate, abs=1e-9), one.name
            assert (one.estimate.units, one.estimate.left_out) == (other.estimate.units, other.estimate.left_out)
    assert report.confusion == expected.confusion
    for one, other in zip([*report.coverage, *report.pairs], [*expected.coverage, *expected.pairs], strict=True):
        assert get_numbers(one) == pytest.approx(get_numbers(other))
