"""Logs of inspect_ai, written by the tool with its mock model: four sums, or 200, two epochs, two scorers."""

import json
import lzma
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction

from grading_app.models import Grading
from grading_app.results.frames import load_condition_labels
from grading_app.study_import.formats.inspect_logs import read_header, read_samples
from grading_app.study_import.importers import read_source
from runs_app.models import Attempt, Endpoint, Experiment, Trial
from tests import factories
from tests.integration.study_import.import_command import export_rows, import_refused_study, import_study
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
LOGS = Path(__file__).parent / "logs"
LOG = LOGS / "sums.eval"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def json_log(tmp_path):
    """Convert the log to a JSON document, the tool's other format."""
    document = {**read_header(LOG), "samples": [sample for _, sample in read_samples(LOG)]}
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(document))
    return path


def test_samples_and_epochs_become_items_and_repetitions(tmp_path):
    experiment = import_study(LOG)
    assert (experiment.slug, experiment.samples, experiment.imported_from) == ("sums", 2, "inspect")
    assert list(experiment.dataset.items.values_list("key", "target", "category")) == [
        ("sum-0", "0", "even"), ("sum-1", "2", "odd"), ("sum-2", "4", "even"), ("sum-3", "6", "odd")
    ]  # fmt: skip
    assert Trial.objects.filter(status="done").count() == Attempt.objects.count() == 8
    condition = experiment.conditions.get()
    assert condition.model.model == "mockllm/model"
    assert condition.sampler.temperature == 0.5
    assert [turn["content"] for turn in condition.prompt.messages] == ["Answer with a number.", "{{input}}"]


def test_the_provider_is_the_one_that_the_log_names(client, owner):
    experiment = import_study(LOG)
    assert {row["provider"] for table in ("trials", "points", "ledger") for row in export_rows(experiment, table)} == {
        "mockllm"
    }
    endpoint = Endpoint.objects.get()
    assert (endpoint.name, endpoint.provider, endpoint.is_active) == ("imported-mockllm", "mockllm", False)
    client.force_login(owner)
    assert "mockllm" in page_text(client.get("/endpoints/"))
    with pytest.raises(IntegrityError, match="provider_choices"), transaction.atomic():
        Endpoint.objects.update(is_active=True)


def test_the_page_marks_imported_results_and_offers_no_launch(client, owner):
    import_study(LOG)
    client.force_login(owner)
    page = client.get("/experiments/sums/").content.decode()
    assert "These results were imported from inspect." in page
    assert "cannot be launched yet" not in page
    assert "/experiments/sums/launch/" not in page
    assert "has had" not in page, "the imported condition is that of the design"


@pytest.mark.parametrize("address", ["/", "/experiments/", "/experiments/sums/progress/"])
def test_costs_that_the_log_does_not_have_are_unknown_on_each_page(client, owner, address):
    import_study(LOG)
    client.force_login(owner)
    text = page_text(client.get(address))
    assert "unknown" in text
    assert "$0.00" not in text


def test_imported_scores_equal_the_log():
    import_study(LOG)
    logged = {}
    for _, sample in read_samples(LOG):
        for scorer, score in sample["scores"].items():
            logged[sample["id"], sample["epoch"], scorer] = {"C": 1.0, "I": 0.0}[score["value"]]
    stored = Grading.objects.values_list("trial__item__key", "trial__sample_idx", "condition__scorer", "score")
    assert {(item, index + 1, scorer): score for item, index, scorer, score in stored} == logged
    assert {scorer for _, _, scorer in logged} == {"match", "includes"}


def test_costs_missing_from_the_log_are_unknown():
    import_study(LOG)
    assert set(Trial.objects.values_list("cost_usd", flat=True)) == {None}
    assert all(tokens is not None for tokens in Trial.objects.values_list("output_tokens", flat=True))


def test_both_formats_of_a_log_give_the_same_study(json_log):
    one, other = read_source(LOG), read_source(json_log)
    assert one.items == other.items
    assert one.conditions == other.conditions
    key = lambda trial: (trial.item, trial.sample_idx)  # noqa: E731
    for a, b in zip(sorted(one.trials(), key=key), sorted(other.trials(), key=key), strict=True):
        assert (a.answer, a.scores, a.output_tokens, a.completed_at) == (
            b.answer,
            b.scores,
            b.output_tokens,
            b.completed_at,
        )


@pytest.mark.django_db(transaction=True)
def test_importing_a_log_twice_creates_its_rows_once(json_log, capsys):
    import_study(LOG)
    import_study(json_log, "--name", "sums")
    assert Trial.objects.count() == 8
    assert Grading.objects.count() == 16
    assert "8 trials already existed" in capsys.readouterr().out
    call_command("reconcile")


@pytest.mark.django_db(transaction=True)
def test_a_log_of_200_samples_and_two_epochs_imported_twice_is_there_once(tmp_path, capsys):
    path = tmp_path / "sums-200.json"
    path.write_bytes(lzma.decompress((LOGS / "sums-200.json.xz").read_bytes()))
    import_study(path)
    kept_trials = set(Trial.objects.values_list("pk", "item__key", "sample_idx", "answer"))
    assert len({(item, index) for _, item, index, _ in kept_trials}) == 400
    import_study(path)
    assert "400 trials already existed" in capsys.readouterr().out
    assert set(Trial.objects.values_list("pk", "item__key", "sample_idx", "answer")) == kept_trials
    assert Experiment.objects.get().dataset.items.count() == 200
    assert (Attempt.objects.count(), Grading.objects.count()) == (400, 800)
    call_command("reconcile")


def test_a_sample_with_an_error_becomes_a_failed_trial(json_log):
    document = json.loads(json_log.read_text())
    failed = document["samples"][0]
    failed["error"] = {"message": "connection lost", "traceback": "..."}
    failed["output"]["choices"], failed["error_retries"] = [], [{"message": "once"}]
    json_log.write_text(json.dumps(document))
    import_study(json_log)
    trial = Trial.objects.get(status="failed")
    assert (trial.error, trial.attempts, trial.gradings.count()) == ("connection lost", 2, 0)


def test_a_key_in_the_traceback_of_an_error_is_not_imported(json_log, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_LAB", "a-very-odd-key-77")
    document = json.loads(json_log.read_text())
    lines = [
        "Traceback (most recent call last):",
        '  File "client.py", line 7, in call',
        "    Client(api_key='odd-but-named-key')",
        "AuthError: Incorrect API key sk-secret-1234567890, Bearer abcdefgh12345678, a-very-odd-key-77",
        "  at https://user:word@api.example.org/v1?key=abcdef",
    ]
    failed = document["samples"][0]
    failed["error"] = {"message": "\n".join(lines), "traceback": "..."}
    failed["output"]["choices"], failed["error_retries"] = [], [{"message": "once"}]
    json_log.write_text(json.dumps(document))
    import_study(json_log)
    trial = Trial.objects.get(status="failed")
    kept = [
        *lines[:2],
        "    Client(api_key='[key]')",
        "AuthError: Incorrect API key [key], [key], [key]",
        "  at https://api.example.org/v1",
    ]
    assert trial.error.split("\n") == kept
    assert {attempt.error for attempt in Attempt.objects.filter(trial=trial)} == {trial.error, "once"}


def test_a_long_text_is_read_from_the_attachments(json_log):
    document = json.loads(json_log.read_text())
    document["samples"][0]["output"]["choices"][0]["message"]["content"] = "attachment://abc"
    document["samples"][0]["attachments"] = {"abc": "a long answer"}
    json_log.write_text(json.dumps(document))
    import_study(json_log)
    assert Trial.objects.filter(answer="a long answer").count() == 1


def test_a_retried_log_gives_the_later_outcome_of_each_sample(tmp_path, json_log):
    retried = json.loads(json_log.read_text())
    failed = json.loads(json_log.read_text())
    failed["samples"][0] |= {"error": {"message": "connection lost"}, "output": {"choices": []}, "scores": None}
    retried["eval"]["created"] = "2027-01-01T00:00:00+00:00"
    folder = tmp_path / "retried"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps(failed))
    (folder / "2.json").write_text(json.dumps(retried))
    experiment = import_study(folder)
    assert (experiment.conditions.count(), Trial.objects.filter(status="done").count(), Trial.objects.count()) == (
        1,
        8,
        8,
    )


def test_two_runs_of_a_task_with_the_same_settings_are_two_conditions(tmp_path, json_log, capsys, client, owner):
    document = json.loads(json_log.read_text())
    document["eval"]["task_id"] = "another"
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(json_log, folder / "1.json")
    (folder / "2.json").write_text(json.dumps(document))
    experiment = import_study(folder)
    assert (experiment.conditions.count(), Trial.objects.count()) == (2, 16)
    names = [
        name.partition("--")[0] for name in experiment.conditions.order_by("pk").values_list("condition_id", flat=True)
    ]
    assert names[0] == "inspect-model_inspect-sums_inspect-temperature-0-5"
    assert re.fullmatch(f"{names[0]}_run-[0-9a-f]{{12}}", names[1])
    assert all(label.startswith("inspect-model (") for label in load_condition_labels(experiment).values())
    client.force_login(owner)
    page = client.get(f"/experiments/{experiment.slug}/").content.decode()
    assert page.count("Planned and frozen") == 2, "the page has both conditions"
    assert "has had" not in page
    assert "it is a condition of its own" in capsys.readouterr().out


def test_the_error_for_a_damaged_log_names_the_file(tmp_path, json_log):
    broken = tmp_path / "broken.json"
    broken.write_text(json_log.read_text()[:-400])
    assert "broken.json: not complete JSON; copy the file again" in import_refused_study(broken)
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(LOG, folder / "good.eval")
    (folder / "short.eval").write_bytes(LOG.read_bytes()[:3000])
    assert "short.eval: not a complete log; copy it again" in import_refused_study(folder)
    assert "short.eval: not a complete log; copy it again" in import_refused_study(folder / "short.eval")
    cut_log = tmp_path / "cut.eval"
    shutil.copy(LOG, cut_log)
    with zipfile.ZipFile(LOG) as archive:
        offset = archive.getinfo(next(name for name in archive.namelist() if name.startswith("samples/"))).header_offset
    content = bytearray(cut_log.read_bytes())
    content[offset + 120 : offset + 160] = bytes(40)
    cut_log.write_bytes(content)
    assert "cut.eval, samples/" in import_refused_study(cut_log)
