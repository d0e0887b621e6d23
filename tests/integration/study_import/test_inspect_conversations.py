"""Logs of inspect_ai with images, several turns, tools, caches, errors and judges, compared call by call.

`logs/make_logs.py` wrote the logs, and `readings.json`: what inspect_ai itself reads in them.
"""

import html
import json
import re
from pathlib import Path

import pytest
from django.core.management import call_command

from datasets_app.importing.limited_reader import FileToRead
from datasets_app.models import Asset
from grading_app.models import GradeCondition, Grading
from grading_app.publish.export.snapshots import make_snapshot
from grading_app.study_import.formats.inspect_logs import read_header, read_samples
from grading_app.study_import.upload_reader import read_study_upload
from runs_app.models import Answer, Attempt, Condition, Experiment, Trial
from tests import factories
from tests.factories.imports import import_snapshot, write_study
from tests.integration.study_import.import_command import export_rows, import_study

pytestmark = pytest.mark.django_db
LOGS = Path(__file__).parent / "logs"
READINGS = json.loads((LOGS / "readings.json").read_text())
SOLVER, JUDGE = "openai/gpt-4o", "anthropic/claude-3-5-sonnet-latest"
SCORES = {"C": 1.0, "I": 0.0}


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def find_trial(sample, **lookups):
    return Trial.objects.filter(pk__in=Answer.objects.values("pk")).get(
        item__key=sample["id"], sample_idx=sample["epoch"] - 1, **lookups
    )


def get_usage(row):
    return {
        "input_tokens": row.input_tokens, "output_tokens": row.output_tokens, "reasoning_tokens": row.reasoning_tokens,
        "input_tokens_cache_read": row.cache_read_tokens, "input_tokens_cache_write": row.cache_write_tokens,
        "total_cost": float(row.cost_usd),
    }  # fmt: skip


def expect_usage(usage):
    """Return the usage as this site counts it: input tokens include those of the provider's cache."""
    cached = (usage["input_tokens_cache_read"] or 0) + (usage["input_tokens_cache_write"] or 0)
    cost = pytest.approx(usage["total_cost"], abs=1e-8)
    return {**usage, "input_tokens": usage["input_tokens"] + cached, "total_cost": cost}


def read_text(page):
    """Return the text of a page without markup, with single blanks."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def read_page(client, trial):
    return read_text(client.get(f"/trials/{trial.pk}/").content.decode())


def describe_turn(turn):
    calls = [[call["function"], call["arguments"]] for call in turn.get("tool_calls", ())]
    return [turn["role"], turn["content"], calls]


@pytest.mark.parametrize("name", READINGS)
def test_every_message_score_token_and_cost_is_the_one_that_inspect_ai_reads(name):
    import_study(LOGS / f"{name}.eval")
    assert Answer.objects.count() == len(READINGS[name])
    for sample in READINGS[name]:
        trial = find_trial(sample)
        assert [describe_turn(turn) for turn in trial.messages] == sample["messages"]
        assert (trial.answer, trial.error) == (sample["answer"], sample["error"])
        if SOLVER in sample["usage"]:
            assert get_usage(trial) == expect_usage(sample["usage"][SOLVER])
            assert trial.served_model == sample["served_model"]
        scores = {
            grading.condition.scorer or grading.condition.parameters["rubric"]: [grading.score, grading.reasoning]
            for grading in trial.gradings.select_related("condition")
        }
        assert scores == {
            scorer: [SCORES.get(value, value), text] for scorer, (value, text) in sample["scores"].items()
        }
        calls = Attempt.objects.filter(trial__in=[trial, *trial.verdicts.all()]).exclude(outcome="transient")
        assert calls.count() == sample["calls"]
        verdicts = list(trial.verdicts.all())
        assert [get_usage(verdict) for verdict in verdicts] == [
            expect_usage(usage) for model, usage in sample["usage"].items() if model == JUDGE
        ]
        assert [verdict.answer for verdict in verdicts] == [
            text for scorer, (_, text) in sample["scores"].items() if scorer.startswith("model_graded")
        ]


@pytest.mark.parametrize("name", READINGS)
def test_spending_is_what_all_calls_of_the_log_cost(name):
    experiment = import_study(LOGS / f"{name}.eval")
    logged = (read_header(LOGS / f"{name}.eval").get("stats") or {})["model_usage"]
    assert float(experiment.spent_usd) == pytest.approx(sum(usage["total_cost"] for usage in logged.values()), abs=1e-7)


@pytest.mark.django_db(transaction=True)
def test_a_second_import_changes_no_row():
    for name in READINGS:
        call_command("import_study", str(LOGS / f"{name}.eval"))
    before = [list(model.objects.order_by("pk").values()) for model in (Trial, Attempt, Grading, GradeCondition, Asset)]
    for name in READINGS:
        call_command("import_study", str(LOGS / f"{name}.eval"))
    after = [list(model.objects.order_by("pk").values()) for model in (Trial, Attempt, Grading, GradeCondition, Asset)]
    assert before == after
    call_command("reconcile")


def test_images_become_images_of_the_items(client, owner, capsys, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    experiment = import_study(LOGS / "pictures.eval")
    images = {item.key: item.image for item in experiment.dataset.items.select_related("image")}
    assert {key: image and (image.width, image.height, image.file.exists()) for key, image in images.items()} == {
        "red": (24, 16, True), "both/two": (24, 16, True), "3": None
    }  # fmt: skip
    assert "Left out of messages: 2 image." in capsys.readouterr().out
    client.force_login(owner)
    page = client.get(f"/trials/{Answer.objects.filter(item__key='red').first().pk}/").content.decode()
    assert images["red"].url in page
    trial = Trial.objects.filter(pk__in=Answer.objects.values("pk")).filter(item__key="both/two").first()
    assert "Which colours are these? [image: not imported]" in read_page(client, trial)


def test_a_dry_run_writes_no_image(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    call_command("import_study", str(LOGS / "pictures.eval"), "--dry-run")
    assert not Experiment.objects.exists()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.slow
def test_an_uploaded_log_has_its_images_and_judges(settings, tmp_path, owner):
    """The limited process reads the upload and hands the study over as files."""
    settings.MEDIA_ROOT = tmp_path
    reading = read_study_upload({"file0": FileToRead(LOGS / "pictures.eval", "pictures.eval")}, "")
    write_study(reading, "uploaded", owner)
    images = list(Asset.objects.all())
    assert len(images) == 2
    assert all(image.file.exists() for image in images)
    assert GradeCondition.objects.get().label == "Model graded qa (claude-3-5-sonnet-latest)"
    assert Trial.objects.filter(subject__isnull=False).count() == 6


def test_a_trial_shows_its_whole_conversation_with_the_calls_of_tools(client, owner, capsys):
    import_study(LOGS / "tools.eval")
    client.force_login(owner)
    trial = Trial.objects.filter(pk__in=Answer.objects.values("pk")).get(item__key="sum-1")
    page = client.get(f"/trials/{trial.pk}/").content.decode()
    turns = [read_text(turn) for turn in re.findall(r'<section class="turn.*?</section>', page, re.DOTALL)]
    assert turns == [
        "User What is the sum of 1 and 2?", "Assistant tool call for tool add",
        'Assistant calls add { "x": 1, "y": 2 }', "Tool add 3", "Assistant stop The tool says 3. ANSWER: 3",
    ]  # fmt: skip
    assert "1 counted, 2 calls" in read_text(page)
    output = capsys.readouterr().out
    assert "2 samples have several calls" in output
    assert "2 samples have several turns" in output
    assert "not taken" not in output


def test_earlier_turns_and_reasoning_are_shown_and_cached_tokens_are_counted(client, owner):
    import_study(LOGS / "talks.eval")
    client.force_login(owner)
    trial = Trial.objects.filter(pk__in=Answer.objects.values("pk")).get(item__key="capital")
    text = read_page(client, trial)
    for part in ("Be brief.", "I see 2 messages. ANSWER: Paris", "Are you sure?", "The capital did not move."):
        assert part in text
    first, second = trial.attempt_rows.order_by("call")
    assert (first.cache_read_tokens, second.cache_read_tokens, second.cache_write_tokens) == (7, 3, 2)
    assert (first.token, first.outcome, second.outcome) == (second.token, "ok", "ok")


def test_a_failed_sample_has_an_attempt_for_each_retry():
    import_study(LOGS / "talks.eval")
    trial = Trial.objects.get(status="failed")
    assert "the server closed the connection" in trial.error
    assert list(trial.attempt_rows.order_by("pk").values_list("outcome", "cost_usd")) == [
        ("transient", None), ("permanent", None)
    ]  # fmt: skip


def test_an_answer_from_the_cache_of_inspect_ai_cost_nothing():
    import_study(LOGS / "cached.eval")
    trial = Trial.objects.get()
    assert (trial.from_cache, trial.cost_usd) == (True, 0)
    attempt = trial.attempt_rows.get()
    assert (attempt.outcome, float(attempt.list_usd)) == ("cached", pytest.approx(0.00017375))


def test_a_model_graded_score_is_exported_as_a_judge_with_its_reason_and_its_cost(client, owner):
    experiment = import_study(LOGS / "talks.eval")
    rows = export_rows(experiment, "gradings")
    judged = [row for row in rows if row["kind"] == "judge"]
    assert len(judged) == 2
    for row in judged:
        assert (row["grader"], row["rubric"]) == ("claude-3-5-sonnet-latest", "model_graded_fact")
        assert len(row["rubric_hash"]) == 12, "the log has the judge's own instructions"
        assert (row["judge_model"], row["judge_served_model"]) == (
            "inspect-claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"
        )  # fmt: skip
        assert row["grade_reasoning"] == "The criterion is clear.\n\nGRADE: C"
        assert row["grade_cost_usd"] == pytest.approx(0.000715)
    assert {row["scorer"] for row in rows if row["kind"] == "rule"} == {"match", "length"}
    call = Trial.objects.get(pk=judged[0]["judge_trial_id"])
    client.force_login(owner)
    assert "You are comparing a submitted answer to an expert answer" in read_page(client, call)
    page = client.get(f"/experiments/{experiment.slug}/grading/").content.decode()
    assert "Model graded fact (claude-3-5-sonnet-latest)" in page
    assert "This judge cannot judge again here" in page


def test_a_judge_whose_calls_are_not_in_the_log_has_an_unknown_cost(tmp_path):
    document = {
        **read_header(LOGS / "talks.eval"),
        "samples": [{**sample, "events": []} for _, sample in read_samples(LOGS / "talks.eval")],
    }
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(document))
    experiment = import_study(path)
    judged = [row for row in export_rows(experiment, "gradings") if row["kind"] == "judge"]
    assert {(row["grader"], row["grade_cost_usd"]) for row in judged} == {("claude-3-5-sonnet-latest", None)}
    assert all("GRADE: C" in row["grade_reasoning"] for row in judged)


def test_two_judges_under_one_name_stay_two_judges(tmp_path):
    folder = tmp_path / "judges"
    folder.mkdir()
    samples = [sample for _, sample in read_samples(LOGS / "talks.eval")]
    for number, judge in enumerate((JUDGE, "openai/gpt-4o-mini")):
        header = read_header(LOGS / "talks.eval")
        header["eval"]["task_id"] = f"task {number}"
        text = json.dumps({**header, "samples": samples}).replace(JUDGE, judge)
        (folder / f"{number}.json").write_text(text)
    experiment = import_study(folder)
    judges = experiment.grade_conditions.filter(kind="judge")
    assert sorted(judge.label for judge in judges) == [
        "Model graded fact (claude-3-5-sonnet-latest)", "Model graded fact (gpt-4o-mini)"
    ]  # fmt: skip
    assert [judge.gradings.count() for judge in judges] == [2, 2]


@pytest.mark.slow
def test_a_snapshot_takes_conversations_judges_and_providers_to_another_site(settings, tmp_path, owner):
    settings.MEDIA_ROOT = tmp_path / "media"
    experiment = import_study(LOGS / "pictures.eval")
    path = make_snapshot(experiment, by="test").path
    copy = import_snapshot(path, owner).experiment
    messages, judges, providers = (
        [list(query.filter(**{lookup: one}).order_by("pk").values_list(*columns)) for one in (experiment, copy)]
        for query, lookup, columns in (
            (Trial.objects, "run__experiment", ("messages", "answer", "cost_usd")),
            (GradeCondition.objects, "experiment", ("kind", "grade_condition_id", "parameters")),
            (Condition.objects, "experiment", ("condition_id", "model__endpoint__provider")),
        )
    )
    assert messages[0] == messages[1]
    assert judges[0] == judges[1]
    assert providers[0] == providers[1]
    assert {provider for _, provider in providers[0]} == {"openai", "anthropic"}
