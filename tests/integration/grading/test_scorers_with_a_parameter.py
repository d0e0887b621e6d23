"""Scorers with a parameter: selected by file, form, results tab or command, and shown everywhere."""

import csv
import io
import json

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.urls import reverse

from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition, Grading
from grading_app.publish.export.file_formats import export_chunks
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.models import Experiment
from runs_app.planning.spec_io import to_yaml
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
PATTERN = r"ANSWER: (\d+)"


@shared_rows
def answered_experiment():
    experiment = factories.make_experiment(scorers=[{"name": "regex", "pattern": PATTERN}])
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, *_: f"ANSWER: {item.target}" if item.key != "item-1" else "none")
    return experiment


def test_the_command_takes_the_parameter_after_a_colon(answered_experiment, capsys):
    call_command("grade", "pilot", "--scorer", f"regex:{PATTERN}", "--scorer", "numeric:0.5")
    assert "2 (" not in capsys.readouterr().out
    parameters = dict(GradeCondition.objects.values_list("scorer", "parameters"))
    assert parameters == {"regex": {"pattern": PATTERN}, "numeric": {"tolerance": "0.5"}}
    assert list(Grading.objects.filter(condition__scorer="regex").values_list("score", "parse_error")) == [
        (1, ""), (None, "no_match"), (1, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ("regex", "regex:PATTERN"),
        ("regex:(", "not a valid regular expression"),
        ("exact_match:x", "takes no parameter"),
    ],
)
def test_the_command_refuses_invalid_parameters(answered_experiment, scorer, message):
    with pytest.raises(CommandError, match=message) as caught:
        call_command("grade", "pilot", "--scorer", scorer)
    assert caught.value.returncode == 2


def test_each_pattern_has_a_separate_grade_condition(answered_experiment):
    for pattern in (PATTERN, r"(\d+)"):
        grade(answered_experiment, scorers=[f"regex:{pattern}"], by="a test")
    first, second = GradeCondition.objects.values_list("grade_condition_id", flat=True)
    assert first != second


def test_exports_contain_the_parameter(answered_experiment):
    grade(answered_experiment, by="a test")
    text = b"".join(export_chunks(answered_experiment, "gradings", "csv", {})).decode("utf-8-sig")
    patterns = [json.loads(row["parameters"])["pattern"] for row in csv.DictReader(io.StringIO(text))]
    assert patterns == [PATTERN] * 3


def test_pages_show_the_parameter(answered_experiment, client):
    grade(answered_experiment, by="a test")
    client.force_login(answered_experiment.owner)
    for page in ("experiment_detail", "experiment_results"):
        assert "ANSWER: (\\d+)" in client.get(reverse(page, args=["pilot"])).content.decode()


def build_content(answered_experiment, *scorers):
    content = yaml.safe_load(to_yaml(answered_experiment))
    return {**content, "experiment": "again", "grade": {"scorers": list(scorers)}}


def test_experiment_files_accept_both_forms_and_export_the_parameter(answered_experiment):
    spec = build_content(
        answered_experiment, f"regex:{PATTERN}", {"name": "json_field", "field": "result.city"}, "exact_match"
    )
    experiment = create_experiment(read_yaml(yaml.safe_dump(spec)), by=answered_experiment.owner, trusted=True)
    assert experiment.scorers == [
        {"name": "regex", "pattern": PATTERN}, {"name": "json_field", "field": "result.city"}, "exact_match",
    ]  # fmt: skip
    assert read_yaml(to_yaml(experiment)).grade.scorers[0].content == experiment.scorers[0]


@pytest.mark.parametrize(
    ("scorer", "problem"),
    [
        ("regex", "grade.scorers[0]: the scorer regex needs a pattern: write regex:PATTERN."),
        ({"name": "regex", "pattern": "("}, "grade.scorers[0]: the pattern is not a valid regular expression"),
        (
            {"name": "regex", "pattern": "x", "patern": "x"},
            "grade.scorers[0]: the scorer regex has no parameter 'patern'; its parameter is pattern, "
            "a regular expression.",
        ),
        (
            {"name": "numeric", "tolerance": "banana"},
            "grade.scorers[0]: the tolerance of the scorer numeric must be a number from 0 to 1,000,000,000,000, "
            "not 'banana'.",
        ),
        ("numeric:banana", "grade.scorers[0]: the tolerance of the scorer numeric must be a number from 0 to"),
        (
            {"name": "final_answer", "limit": 0},
            "grade.scorers[0]: the limit of the scorer final_answer must be a whole",
        ),
        ({"name": "regex", "pattern": True}, "grade.scorers[0].pattern: write a text or a number"),
        ({"name": "numeric", "tolerance": float("nan")}, "grade.scorers[0].tolerance: write a text or a number"),
        ({"name": "exact_match", "pattern": "x"}, "grade.scorers[0]: the scorer exact_match takes no parameter."),
    ],
)
def test_an_invalid_file_is_refused_with_its_key(answered_experiment, scorer, problem):
    with pytest.raises(SpecError) as caught:
        create_experiment(
            read_yaml(yaml.safe_dump(build_content(answered_experiment, scorer))),
            by=answered_experiment.owner,
            trusted=True,
        )
    assert caught.value.problems[0].startswith(problem)


@pytest.fixture
def form_data(answered_experiment):
    return {
        "slug": "by-form", "sharing": "private", "dataset": answered_experiment.dataset_id,
        "samples": 1, "max_concurrency": 8,
        "language_models": list(answered_experiment.language_models.values_list("pk", flat=True)),
        "prompts": list(answered_experiment.prompts.values_list("pk", flat=True)),
        "samplers": list(answered_experiment.samplers.values_list("pk", flat=True)),
        "request_timeout_s": 30, "max_attempts": 2, "on_empty": "keep", "scorers": ["exact_match"],
    }  # fmt: skip


def test_the_experiment_form_accepts_and_shows_the_parameter(answered_experiment, form_data, client):
    client.force_login(answered_experiment.owner)
    lines = f"regex:{PATTERN}\r\n\r\njson_field:result.city"
    assert client.post(reverse("experiment_new"), {**form_data, "rules": lines}).status_code == 302
    experiment = Experiment.objects.get(slug="by-form")
    assert experiment.scorers == [
        "exact_match", {"name": "regex", "pattern": PATTERN}, {"name": "json_field", "field": "result.city"},
    ]  # fmt: skip
    form = client.get(reverse("experiment_edit", args=["by-form"])).context["form"]
    assert form["scorers"].value() == ["exact_match"]
    assert form["rules"].value() == f"regex:{PATTERN}\njson_field:result.city"


def test_the_form_names_the_invalid_line_and_keeps_all_entries(answered_experiment, form_data, client):
    client.force_login(answered_experiment.owner)
    page = client.post(reverse("experiment_new"), {**form_data, "rules": "regex:x\nregex:("})
    assert "Line 2: The pattern is not a valid regular expression" in page.content.decode()
    assert page.context["form"]["rules"].value() == "regex:x\nregex:("


def test_forms_and_the_command_refuse_a_value_out_of_its_bounds(answered_experiment, form_data, client):
    client.force_login(answered_experiment.owner)
    problem = (
        "The tolerance of the scorer numeric must be a number from 0 to 1,000,000,000,000, not &#x27;banana&#x27;."
    )
    page = client.post(reverse("experiment_new"), {**form_data, "rules": "numeric:0.1\nnumeric:banana"})
    assert f"Line 2: {problem}" in page.content.decode()
    page = client.post(reverse("experiment_grade", args=["pilot"]), {"rules": "numeric:banana"})
    assert f"Line 1: {problem}" in page.content.decode()
    with pytest.raises(CommandError, match="The tolerance of the scorer numeric must be a number") as refusal:
        call_command("grade", "pilot", "--scorer", "numeric:banana")
    assert refusal.value.returncode == 2
    assert not GradeCondition.objects.exists()


def test_a_mapping_may_have_every_declared_parameter(answered_experiment):
    rule = {"name": "final_answer", "limit": 200}
    experiment = create_experiment(
        read_yaml(yaml.safe_dump(build_content(answered_experiment, rule))), by=answered_experiment.owner, trusted=True
    )
    assert experiment.scorers == [{"name": "final_answer", "limit": "200"}]


def test_a_parametric_scorer_can_be_the_stopping_rule_of_points(answered_experiment, form_data, client):
    client.force_login(answered_experiment.owner)
    points = {"adaptive-by": "category", "adaptive-scorer": "regex", "adaptive-targetci": "0.1"}
    page = client.post(reverse("experiment_new"), {**form_data, **points})
    assert "Adaptive stopping uses regex. The scorer regex needs a pattern" in page.content.decode()
    posted_data = {**form_data, **points, "rules": f"regex:{PATTERN}"}
    assert client.post(reverse("experiment_new"), posted_data).status_code == 302
    assert Experiment.objects.get(slug="by-form").adaptive["scorer"] == "regex"


def test_the_results_and_grading_tabs_grade_with_a_parameter(answered_experiment, client, monkeypatch):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *task: tasks.append(task[2]))
    client.force_login(answered_experiment.owner)
    assert 'name="rules"' in client.get(reverse("experiment_grading", args=["pilot"])).content.decode()
    address = reverse("experiment_grade", args=["pilot"])
    client.post(address, {"scorer": ["exact_match"], "rules": f"regex:{PATTERN}"})
    assert tasks == [["exact_match", {"name": "regex", "pattern": PATTERN}]]
    caught = client.post(address, {"scorer": ["exact_match"], "rules": "regex:("})
    assert "Line 1: The pattern is not a valid regular expression" in caught.content.decode()
    assert len(tasks) == 1
    assert "regex:(" in caught.content.decode()
