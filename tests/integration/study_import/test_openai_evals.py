"""Logs and a registry of OpenAI Evals. The tool wrote the logs with the simulated provider and with its own model."""

import json
import shutil
from pathlib import Path

import pytest
from django.core.management import call_command

from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Experiment, Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "openai_evals"
LOG = FOLDER / "capitals.jsonl"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def read_events(file, kind):
    return [event for line in file.read_text().splitlines() if (event := json.loads(line)).get("type") == kind]


def test_samples_become_items_and_replies_answers():
    experiment = import_study(LOG)
    assert (experiment.slug, experiment.imported_from) == ("capitals", "openai-evals")
    item = experiment.dataset.items.get(key="capitals.test.0")
    assert (item.input, item.target) == ("Answer in one word.\n\nThe capital of France?", "Paris\nPARIS")
    expected = {event["sample_id"]: event["data"] for event in read_events(LOG, "sampling")}
    for trial in Trial.objects.select_related("item"):
        data = expected[trial.item.key]
        assert trial.answer == data["sampled"][0]
        assert (trial.input_tokens, trial.output_tokens) == (
            data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]
        )  # fmt: skip
        assert [turn["role"] for turn in trial.messages] == ["system", "user", "assistant"]
        assert trial.cost_usd is None
    matches = {event["sample_id"]: float(event["data"]["correct"]) for event in read_events(LOG, "match")}
    assert dict(Grading.objects.values_list("trial__item__key", "score")) == matches


def test_the_last_reply_of_a_model_graded_eval_is_the_verdict_of_a_judge():
    experiment = import_study(FOLDER / "capitals-graded.jsonl")
    assert experiment.conditions.filter(stage="judge").get().model.model == "gpt-3.5-turbo"
    calls = read_events(FOLDER / "capitals-graded.jsonl", "sampling")
    assert Trial.objects.filter(subject=None).count() * 2 == Trial.objects.count() == len(calls) == 6
    for grading in Grading.objects.select_related("judged_by"):
        assert grading.judged_by.answer in [event["data"]["sampled"][0] for event in calls]
        assert grading.score_raw in "ABCDE"
        assert grading.score is None


def test_a_log_without_prompts_has_answers_and_names_what_is_missing():
    log = FOLDER / "dummy.jsonl"
    experiment = import_study(log)
    assert experiment.conditions.get().model.model == "dummy"
    matches = {event["sample_id"]: event["data"] for event in read_events(log, "match")}
    assert {trial.item.key: trial.answer for trial in Trial.objects.all()} == {
        sample: data["sampled"] for sample, data in matches.items()
    }
    assert set(experiment.dataset.items.values_list("input", "target")) == {
        ("", "\n".join(data["expected"])) for data in matches.values()
    }
    assert [grading.score for grading in Grading.objects.all()] == [0.0] * len(matches)
    notes = read_source(log).notes
    for text in ("1 final reports have means", "3 samples have no recorded prompt"):
        assert any(note.startswith(text) for note in notes), text


def test_logs_of_a_folder_are_one_study_with_a_condition_each():
    study = read_source(FOLDER)
    assert (len(study.items), len(study.conditions), sum(1 for _ in study.trials())) == (6, 3, 9)
    assert any(note.startswith("Costs, times of answers and settings") for note in study.notes)


def test_an_event_without_a_sample_is_refused_with_its_line(tmp_path):
    lines = LOG.read_text().splitlines()
    event = json.loads(lines[1])
    del event["sample_id"]
    (tmp_path / "log.jsonl").write_text("\n".join([lines[0], json.dumps(event)]) + "\n")
    assert "log.jsonl, line 2: an event needs sample_id" in import_refused_study(tmp_path / "log.jsonl")


def test_an_error_event_is_a_failed_trial(tmp_path):
    lines = LOG.read_text().splitlines()
    error = json.loads(lines[1]) | {"type": "error", "data": {"error": "lost"}}
    (tmp_path / "log.jsonl").write_text("\n".join([lines[0], json.dumps(error)]) + "\n")
    (trial,) = read_source(tmp_path / "log.jsonl").trials()
    assert (trial.is_done, trial.answer, trial.error) == (False, "", '{"error": "lost"}')


def test_a_registry_becomes_a_draft_with_its_samples_as_items(capsys):
    factories.make_model("answerer")
    call_command("import_study", str(FOLDER / "registry"), "--name", "capitals")
    experiment = Experiment.objects.get()
    assert (experiment.status, experiment.language_models.get().name) == ("draft", "answerer")
    assert list(experiment.dataset.items.order_by("position").values_list("target", flat=True)) == [
        "Paris\nPARIS", "Tokyo\nTOKYO", "Lima\nLIMA"
    ]  # fmt: skip
    output = capsys.readouterr().out
    for text in ("The rule Includes is not taken", "the draft has answerer", "was created with 3 items"):
        assert text in output


def test_a_registry_without_its_data_or_a_site_without_models_is_refused(tmp_path):
    shutil.copy(FOLDER / "registry" / "evals" / "capitals.yaml", tmp_path)
    assert "capitals/samples.jsonl is not here" in import_refused_study(tmp_path / "capitals.yaml")
    assert "create a model first" in import_refused_study(FOLDER / "registry")
