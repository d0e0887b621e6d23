"""Results and the configuration of promptfoo, written by the tool against the simulated provider."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import call_command

from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Experiment, Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "promptfoo"
RESULTS = FOLDER / "results.json"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def read_rows():
    return json.loads(RESULTS.read_text())["results"]["results"]


def test_tests_become_items_and_repeated_tests_repetitions():
    experiment = import_study(RESULTS)
    assert (experiment.slug, experiment.imported_from, experiment.samples) == ("capitals", "promptfoo", 2)
    assert sorted(experiment.dataset.items.values_list("target", flat=True)) == ["Lima", "Paris", "Tokyo"]
    assert experiment.conditions.filter(stage="generate").count() == 6
    small = experiment.conditions.filter(model__model="small-model").first()
    assert (small.sampler.temperature, small.sampler.max_tokens) == (0.5, 32)
    assert {turn["role"] for condition in experiment.conditions.all() for turn in condition.prompt.messages} == {
        "system", "user"
    }  # fmt: skip


def test_answers_failures_and_tokens_are_those_of_the_file():
    import_study(RESULTS)
    rows = read_rows()
    errors = [row for row in rows if row["failureReason"] == 2]
    assert errors
    assert Trial.objects.filter(status="failed").count() == len(errors)
    done = Trial.objects.filter(status="done")
    assert Counter(done.values_list("answer", flat=True)) == Counter(
        row["response"]["output"] for row in rows if row["failureReason"] != 2
    )
    assert sum(done.values_list("output_tokens", flat=True)) == sum(
        row["tokenUsage"]["completion"] for row in rows if row["failureReason"] != 2
    )
    assert set(done.values_list("cost_usd", flat=True)) == {None}


def test_each_assertion_is_a_score_and_so_is_the_score_of_the_test():
    import_study(RESULTS)
    expected: Counter[str] = Counter()
    for row in read_rows():
        if row["failureReason"] != 2:
            expected["score"] += row["score"]
            for part in row["gradingResult"]["componentResults"]:
                expected[part["assertion"].get("metric") or part["assertion"]["type"]] += part["score"]
    sums: Counter[str] = Counter()
    for scorer, score in Grading.objects.values_list("condition__scorer", "score"):
        sums[scorer] += score
    assert {name: pytest.approx(value) for name, value in expected.items()} == dict(sums)


def test_notes_count_what_is_not_kept():
    study = read_source(RESULTS)
    notes = " ".join(study.notes)
    for text in ("addresses of providers are not taken", "The cost of 36 results", "8 scores are of judges"):
        assert text in notes
    assert "127.0.0.1" not in repr([study.items, study.conditions])


def test_a_configuration_becomes_a_draft_with_its_dataset():
    factories.make_endpoint("openai")
    call_command("import_study", str(FOLDER / "promptfooconfig.yaml"))
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.status, str(experiment.dataset)) == ("capitals", "draft", "capitals@1")
    assert sorted(experiment.language_models.values_list("model", flat=True)) == [
        "large-model", "lost-model", "small-model"
    ]  # fmt: skip
    assert [item.metadata["country"] for item in experiment.dataset.items.order_by("position")] == [
        "France", "Japan", "Peru"
    ]  # fmt: skip
    assert experiment.prompts.get(name="promptfoo-plain").messages[0]["content"] == (
        "Name the capital of {{meta.country}}."
    )


def test_a_dry_run_of_a_configuration_creates_nothing(capsys):
    factories.make_endpoint("openai")
    call_command("import_study", str(FOLDER / "promptfooconfig.yaml"), "--dry-run")
    output = capsys.readouterr().out
    assert "capitals: would be created as a draft" in output
    assert "Assertions are not taken; choose scorers and judges: 3 icontains, 1 javascript, 1 llm-rubric." in output
    assert not Experiment.objects.exists()


def test_the_text_of_a_prompt_file_is_read_from_the_folder_alone(tmp_path):
    config = tmp_path / "study" / "promptfooconfig.yaml"
    config.parent.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    for name in ("../secret.txt", "lost.txt"):
        config.write_text(f"prompts: ['file://{name}']\nproviders: [openai:gpt-4o]\n")
        assert f"the prompt {name} is not a text file of the folder" in import_refused_study(config)
    (config.parent / "ask.txt").write_text("Capital of {{ country }}?")
    config.write_text("prompts: ['file://ask.txt']\nproviders: [openai:gpt-4o]\n")
    (prompt,) = read_source(config).content["prompts"]
    assert prompt["messages"] == [{"role": "user", "content": "Capital of {{meta.country}}?"}]


def test_a_result_with_another_form_is_refused_with_its_number(tmp_path):
    content = json.loads(RESULTS.read_text())
    content["results"]["results"][2]["promptIdx"] = "first"
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    assert "results.json, result 3: cannot be read" in import_refused_study(path)


def test_evaluations_of_a_folder_are_one_study(tmp_path):
    for name in ("monday.json", "tuesday.json"):
        shutil.copy(RESULTS, tmp_path / name)
    assert max(trial.sample_idx for trial in read_source(tmp_path).trials()) == 3
