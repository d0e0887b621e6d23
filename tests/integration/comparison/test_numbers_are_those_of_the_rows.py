"""What the database adds up gives, number by number, what the pure measures give on the exported rows one by one."""

import csv
import io
import random
from dataclasses import astuple

import pytest
from django.http import QueryDict

from grading_app.comparison.agreement_report import measured
from grading_app.comparison.comparison_cache import compare, roles_of
from grading_app.comparison.query import QuestionForm
from grading_app.comparison.unit_counts import load_frame
from grading_app.export.formats import export_chunks
from grading_app.statistics.ratings import ratings_from
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric

pytestmark = pytest.mark.django_db


def random_grades(seed, raters=3):
    draw = random.Random(seed)
    made, rubric = make_answered_experiment(items=7, samples=4), make_scale_rubric()
    for at in range(raters):
        make_gradings(made, f"judge-{'x' * at}", lambda trial: draw.choice([None, 1, 2, 2, 1 / 3, 5]), rubric=rubric)
    return made


def numbers(one):
    return [value for value in astuple(one) if isinstance(value, (int, float))]


@pytest.mark.parametrize(("seed", "raters"), [(1, 2), (2, 3), (3, 4)])
def test_every_measure_is_that_of_the_pure_function_on_the_rows(seed, raters):
    experiment = random_grades(seed, raters)
    question = QuestionForm(QueryDict(""), experiment).question()
    roles = roles_of(question, {})
    found = compare(question, roles, load_frame(question)).measured
    keys = [rater.key for rater in question.raters]
    names = dict(experiment.grade_conditions.values_list("grade_condition_id", "pk"))
    exported = csv.DictReader(io.StringIO(b"".join(export_chunks(experiment, "gradings", "csv")).decode(), newline=""))
    scored = sorted((row for row in exported if row["score"]), key=lambda row: int(row["trial_id"]))
    single = ratings_from(
        (row["trial_id"], f"g{names[row['grade_condition_id']]}", float(row["score"])) for row in scored
    )
    expected = measured(single, raters=keys, pair=(keys[0], keys[1]), judge=None, people=[])
    assert [(one.name, one.why) for one in found.lines] == [(one.name, one.why) for one in expected.lines]
    for one, other in zip(found.lines, expected.lines, strict=True):
        if one.estimate is not None:
            assert one.estimate.estimate == pytest.approx(other.estimate.estimate, abs=1e-9), one.name
            assert (one.estimate.units, one.estimate.left_out) == (other.estimate.units, other.estimate.left_out)
    assert found.confusion == expected.confusion
    for one, other in zip([*found.covered, *found.pairs], [*expected.covered, *expected.pairs], strict=True):
        assert numbers(one) == pytest.approx(numbers(other))
