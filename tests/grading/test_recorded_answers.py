"""Grades of real answers equal what was published with them."""

import csv
import io

import pytest

from grading_app.exporting import export_chunks
from grading_app.grading import grade
from grading_app.models import Grading
from runs_app.models import Trial
from tests import factories
from tests.core.realdata import json_lines

pytestmark = pytest.mark.django_db
MODELS = {"6b_finetuning": 286, "6b_verification": 515}


def answered_word_problems():
    rows = json_lines("gsm8k-model-solutions.jsonl")
    items = [
        {"key": str(number), "input": row["question"], "target": row["ground_truth"].rpartition("A:")[2].strip()}
        for number, row in enumerate(rows)
    ]
    experiment = factories.make_experiment(
        dataset=factories.make_dataset("word-problems", items),
        models=[factories.make_model(name) for name in MODELS],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment):
        solutions = {str(number): row[run.condition.model.name]["solution"] for number, row in enumerate(rows)}
        factories.plan_trials(run, answer=lambda item, *cell, solutions=solutions: solutions[item.key])
    return experiment, rows


def test_word_problems_are_graded_as_their_authors_graded_them():
    experiment, rows = answered_word_problems()
    (report,) = grade(experiment, by="a test")
    assert (report.graded, report.unread.total()) == (2638, 0)
    graded = Grading.objects.values_list("trial__run__condition__model__name", "trial__item__key", "score")
    found = {(model, key): score == 1 for model, key, score in graded}
    published = {(model, str(at)): row[model]["is_correct"] for at, row in enumerate(rows) for model in MODELS}
    assert {pair for pair in found if found[pair] != published[pair]} == set()
    assert {model: sum(right for (who, _), right in found.items() if who == model) for model in MODELS} == MODELS


def test_the_exported_gradings_say_the_same():
    experiment, _ = answered_word_problems()
    grade(experiment, by="a test")
    text = b"".join(export_chunks(experiment, "gradings", "csv")).decode()
    right = dict.fromkeys(MODELS, 0)
    for row in csv.DictReader(io.StringIO(text, newline="")):
        right[row["model"]] += float(row["score"])
    assert right == MODELS
    assert Trial.objects.count() == 2638
