"""Grades of recorded answers: equal to the published grades."""

import csv
import io
from collections import Counter

import pytest

from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.publish.export.file_formats import export_chunks
from tests.factories import recordings

pytestmark = pytest.mark.django_db
RIGHT = {"6b_finetuning": 286, "6b_verification": 515}


@pytest.mark.slow
def test_grades_of_word_problems_equal_the_published_grades():
    experiment, rows = recordings.make_word_problems()
    (report,) = grade(experiment, by="a test")
    assert (report.graded, report.unread.total()) == (2638, 0)
    graded = Grading.objects.values_list("trial__run__condition__model__name", "trial__item__key", "score")
    grades = {(model, key): score == 1 for model, key, score in graded}
    published = {(model, str(at)): row[model]["is_correct"] for at, row in enumerate(rows) for model in RIGHT}
    assert {pair for pair in grades if grades[pair] != published[pair]} == set()
    assert Counter(model for (model, _), right in grades.items() if right) == RIGHT


@pytest.mark.slow
def test_exported_gradings_equal_the_published_grades():
    experiment, _ = recordings.make_word_problems()
    grade(experiment, by="a test")
    text = b"".join(export_chunks(experiment, "gradings", "csv")).decode()
    rows = csv.DictReader(io.StringIO(text, newline=""))
    assert Counter(row["model"] for row in rows if float(row["score"]) == 1) == RIGHT


@pytest.mark.slow
def test_ratings_are_graded_by_the_value_parsed_on_arrival():
    experiment, rows = recordings.make_rated_photographs()
    (report,) = grade(experiment, by="a test")
    assert (report.scorer, report.graded) == ("rating", 3160)
    graded = Grading.objects.values_list("trial__item__key", "trial__dimension__name", "trial__sample_idx", "score")
    rows_read = [
        (row["image_id"], row["dimension"], int(row["sample_idx"]), float(row["rating"]))
        for row in rows
        if row["rating"]
    ]
    assert Counter(graded) == Counter(rows_read)
