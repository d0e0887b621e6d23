"""Runs of HELM, written by the tool with its model `simple/model1`, which makes no calls."""

import json
import zipfile
from pathlib import Path

import pytest

from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
RUNS = Path(__file__).parent / "helm" / "runs.zip"
CHOICES = "v1/simple_mcqa:model=simple_model1"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def run(tmp_path):
    """Return the folder of the run with choices."""
    with zipfile.ZipFile(RUNS) as archive:
        archive.extractall(tmp_path)
    return tmp_path / CHOICES


def read_part(name, run=CHOICES):
    with zipfile.ZipFile(RUNS) as archive:
        return json.loads(archive.read(f"{run}/{name}"))


def change_state(run, change):
    file = run / "scenario_state.json"
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))


def test_instances_become_items_and_completions_repetitions():
    experiment = import_study(RUNS, "--name", "suite")
    assert (experiment.imported_from, experiment.samples) == ("helm", 9)
    assert experiment.conditions.count() == 2
    item = experiment.dataset.items.get(key="simple_mcqa-id60")
    assert (item.input, item.target, item.choices) == ("Is 70 even or odd?", "Even", ["Even", "Odd"])
    requests = read_part("scenario_state.json")["request_states"]
    for request in requests:
        trial = Trial.objects.get(item__key=f"simple_mcqa-{request['instance']['id']}")
        assert trial.answer == request["result"]["completions"][0]["text"]
        assert trial.messages[0]["content"] == request["request"]["prompt"]
    completions = read_part("scenario_state.json", "v1/simple1:model=simple_model1")["request_states"]
    assert Trial.objects.filter(item__category="simple1").count() == sum(
        len(request["result"]["completions"]) for request in completions
    )


def test_scores_have_the_means_that_the_tool_reports(run):
    import_study(run)
    means = {
        stat["name"]["name"]: stat["sum"] / stat["count"]
        for stat in read_part("stats.json")
        if stat["count"] and stat["name"]["split"] == "test" and "perturbation" not in stat["name"]
    }
    names = set(Grading.objects.values_list("condition__scorer", flat=True))
    assert "exact_match" in names
    assert not any(name.startswith(("num_", "finish_reason", "inference")) for name in names)
    for name in ("exact_match", "quasi_exact_match"):
        scores = Grading.objects.filter(condition__scorer=name).values_list("score", flat=True)
        assert sum(scores) / len(scores) == pytest.approx(means[name])
    (tokens,) = {trial.output_tokens for trial in Trial.objects.all()}
    assert tokens == means["num_output_tokens"]


def test_one_request_for_each_reference_gives_the_most_likely_answer(run):
    def ask_separately(state):
        first = state["request_states"][0]
        state["request_states"] = []
        for place, likelihood in enumerate((-5.0, -2.5)):
            request = json.loads(json.dumps(first)) | {"reference_index": place}
            request["result"]["completions"][0]["logprob"] = likelihood
            calibration = request | {"request_mode": "calibration"}
            state["request_states"] += [request | {"request_mode": "original"}, calibration]

    change_state(run, ask_separately)
    study = read_source(run)
    (trial,) = study.trials()
    assert trial.answer == "Odd"
    assert any("2 requests for calibration are not taken" in note for note in study.notes)


def test_a_request_without_a_result_is_a_failed_trial(run):
    def fail(state):
        state["request_states"][0]["result"] = {"success": False, "completions": [], "error": "too long"}

    change_state(run, fail)
    first = next(iter(read_source(run).trials()))
    assert (first.is_done, first.error, first.raw_response, first.scores) == (False, "too long", None, ())


def test_a_run_without_scores_is_imported_and_named(run):
    (run / "per_instance_stats.json").unlink()
    study = read_source(run)
    assert any("1 runs have no per_instance_stats.json" in note for note in study.notes)
    assert not any(trial.scores for trial in study.trials())


def test_a_damaged_request_is_refused_with_its_number(run):
    change_state(run, lambda state: state["request_states"][1].pop("instance"))
    assert "request 2: cannot be read" in import_refused_study(run)
