"""Results of lm-evaluation-harness, written by the tool with its dummy model: three sums, and four ranked choices."""

import json
import shutil
from pathlib import Path

import pytest

from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
RESULTS = Path(__file__).parent / "lm_eval"
SUMS = "samples_sums_2026-11-25T12-00-00.000000.jsonl"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(RESULTS, tmp_path / "runs"))


def change_first_row(file, **changes):
    first, rest = file.read_text().split("\n", 1)
    file.write_text(json.dumps(json.loads(first) | changes) + "\n" + rest)


def test_documents_become_items_and_responses_become_repetitions():
    experiment = import_study(RESULTS)
    assert (experiment.imported_from, experiment.samples) == ("lm-eval", 2)
    items = dict(experiment.dataset.items.values_list("key", "target"))
    assert items == {
        "sums-0": "0", "sums-1": "2", "sums-2": "4",
        "colours-0": "red", "colours-1": "blue", "colours-2": "green", "colours-3": "red",
    }  # fmt: skip
    condition = experiment.conditions.get()
    assert (condition.model.model, condition.sampler.temperature, condition.sampler.max_tokens) == (
        "lab/dummy-1",
        0.5,
        64,
    )
    sums = Trial.objects.filter(item__category="sums")
    assert (sums.count(), set(sums.values_list("answer", flat=True))) == (6, {"lol"})


def test_the_scores_have_the_means_that_the_tool_reports():
    experiment = import_study(RESULTS)
    reported = json.loads((RESULTS / "results_2026-11-25T12-00-00.000000.json").read_text())["results"]
    names = {
        "acc": ("colours", "acc,none"), "acc_norm": ("colours", "acc_norm,none"),
        "exact_match-strict-match": ("sums", "exact_match,strict-match"),
        "exact_match-flexible": ("sums", "exact_match,flexible"),
    }  # fmt: skip
    for name, (task, metric) in names.items():
        scores = Grading.objects.filter(condition__experiment=experiment, condition__scorer=name).values_list(
            "score", flat=True
        )
        assert len(scores) == reported[task]["sample_len"], name
        assert sum(scores) / len(scores) == pytest.approx(reported[task][metric]), name


def test_a_ranked_answer_is_the_choice_with_the_highest_likelihood():
    for trial in read_source(RESULTS).trials():
        if trial.item.startswith("colours"):
            likelihoods = json.loads(trial.raw_response)
            assert likelihoods[trial.answer] == max(likelihoods.values())


def test_notes_count_what_is_not_kept():
    notes = " ".join(read_source(RESULTS).notes)
    for text in ("Tokens, costs, times", "4 answers are the choice", "3 documents have several responses"):
        assert text in notes
    assert "means, which are not taken" not in notes


def test_tasks_without_samples_and_samples_without_results_are_named(folder):
    (folder / SUMS).unlink()
    assert any("1 tasks or groups have no samples" in note and "sums" in note for note in read_source(folder).notes)
    next(folder.glob("results_*.json")).unlink()
    assert any("1 files of samples have no results" in note for note in read_source(folder).notes)


def test_a_metric_that_is_no_number_has_no_score(folder):
    change_first_row(folder / SUMS, exact_match=[-3.2, 7])
    study = read_source(folder)
    assert any("1 metrics are no numbers" in note for note in study.notes)
    (score,) = (score for trial in study.trials() for score in trial.scores if score.error)
    assert (score.value, score.error, score.raw) == (None, "not_a_number", "[-3.2, 7]")


def test_another_document_under_a_known_number_is_refused_with_its_line(folder):
    (folder / "other").mkdir()
    shutil.copy(folder / SUMS, folder / "other" / "samples_sums_2026-11-26T12-00-00.000000.jsonl")
    change_first_row(folder / "other" / "samples_sums_2026-11-26T12-00-00.000000.jsonl", doc_hash="another")
    assert "line 1: document 0 of sums has another content" in import_refused_study(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resps": []}, "line 1: cannot be read"),
        ({"arguments": {}}, "line 1: cannot be read"),
        ({"metrics": 7}, "line 1"),
    ],
)
def test_a_row_with_another_form_is_refused_with_its_line(folder, changes, problem):
    change_first_row(folder / SUMS, **changes)
    assert problem in import_refused_study(folder, "--format", "lm-eval")
