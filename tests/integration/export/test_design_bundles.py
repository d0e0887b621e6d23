"""Bundles of a design: all parts that another site needs to launch it, grade its answers and have them rated."""

import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings

from datasets_app.models import Dataset
from evalsite.lib import permissions
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.rating import queues
from grading_app.models import GradeCondition, Grader, Panel, RatingQueue, Rubric
from grading_app.publish.export.snapshot_check import SCHEMA, verify
from runs_app.models import (
    Condition,
    Endpoint,
    Experiment,
    ItemText,
    LanguageModel,
    Prompt,
    Run,
    Sampler,
    TextSet,
    Trial,
)
from runs_app.planning.plan import plan
from tests import factories
from tests.factories.imports import import_snapshot
from tests.factories.judges import PAIR_TURNS, SCORE_TURNS, make_grader, make_item_texts, make_rubric
from tests.factories.queues import make_numbered_items

pytestmark = pytest.mark.django_db
RECORDED = Path(__file__).parent / "bundles"
WITH_TEXTS = [*SCORE_TURNS, {"role": "user", "content": "{{item_rubric}}"}]


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def owner():
    return factories.make_user("importer", permissions.RESEARCHER)


def make_design():
    """Return a design with two judges, their panel, item rubrics with their template, and a rating queue."""
    dataset = make_numbered_items("things", 3, approved=False)
    dataset.approve(by="test", reason="ready")
    judge = factories.make_model("judge-model")
    strict = make_grader("strict", model=judge, on_empty="zero", longest_answer=900)
    texts = make_item_texts(dataset, "own")
    own = make_grader("own", rubric=make_rubric("own-rubric", messages=WITH_TEXTS), model=judge, text_set=texts)
    make_grader("unrelated", rubric=make_rubric("other"), model=factories.make_model("elsewhere"))
    Panel.objects.create(name="both", rule="median", quorum=1).graders.set([strict, own])
    Panel.objects.create(name="others").graders.set([strict, Grader.objects.get(name="unrelated")])
    experiment = factories.make_experiment(
        "pilot", dataset=dataset, graders=["strict", "own"], scorers=["numeric"], stop_failure_rate=0.2,
        stop_after_attempts=50, models=[factories.make_model("small")],
    )  # fmt: skip
    template = make_rubric("template", kind="writer", messages=[{"role": "user", "content": "Write: {{input}}"}])
    writer = Condition.objects.create(
        experiment=experiment, stage="rubric", condition_id="writer--1", model=factories.make_model("writer-model"),
        sampler=factories.make_sampler("writing", temperature=0.5), content={"prompt": {"messages": template.messages}},
    )  # fmt: skip
    TextSet.objects.filter(pk=texts.pk).update(written_by=writer)
    queue = RatingQueue.objects.create(
        name="reading", title="Read", instructions="Rate.", owner=experiment.owner, dataset=dataset, subject="answers",
        experiment=experiment, rubric=make_rubric("pairs", kind="pairwise", messages=PAIR_TURNS), raters_wanted=2,
        attention_checks={"thing-1": [1]}, sample_seed=7,
    )  # fmt: skip
    queue.conditions.set(factories.make_conditions(experiment)[:1])
    return experiment


def write(tmp_path, name="pilot"):
    call_command("bundle", "design", name, "--out", str(tmp_path / "design.zip"))
    return tmp_path / "design.zip"


@pytest.fixture(scope="module")
def bundle_of_another_site(django_db_setup, django_db_blocker, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other_site")
    with django_db_blocker.unblock(), override_settings(MEDIA_ROOT=folder / "media"), transaction.atomic():
        make_design()
        path = write(folder)
        transaction.set_rollback(True)
    shutil.rmtree(folder / "media", ignore_errors=True)
    return path


@pytest.fixture
def foreign_bundle(bundle_of_another_site, tmp_path):
    """Return a bundle of another site. Its rows no longer exist here."""
    assert not Dataset.objects.exists()
    return Path(shutil.copy(bundle_of_another_site, tmp_path))


def test_an_imported_design_has_its_judges_panels_rubrics_and_settings(foreign_bundle, owner):
    assert verify(foreign_bundle).problems == []
    imported = import_snapshot(foreign_bundle, owner)
    experiment = imported.experiment
    assert (experiment.graders, experiment.scorers) == (["strict", "own"], ["numeric"])
    assert (experiment.stop_failure_rate, experiment.stop_after_attempts) == (0.2, 50)
    strict, own = Grader.objects.of_design(experiment)
    assert (strict.on_empty, strict.longest_answer, strict.sampler.temperature) == ("zero", 900, 0.0)
    assert (strict.rubric.status, strict.rubric.messages) == ("imported", SCORE_TURNS)
    assert (own.text_set.status, own.text_set.dataset, own.text_set.written_by) == (
        "imported",
        experiment.dataset,
        None,
    )
    assert own.text_set.texts.get(item__key="thing-2").text == "Own rubric of thing-2"
    panel = Panel.objects.get()
    assert (panel.name, panel.rule, panel.quorum, set(panel.graders.all())) == ("both", "median", 1, {strict, own})
    assert not Grader.objects.filter(name="unrelated").exists()
    assert not LanguageModel.objects.filter(name="elsewhere").exists()


def test_the_import_includes_template_model_and_sampler_of_item_rubrics(foreign_bundle, owner):
    import_snapshot(foreign_bundle, owner)
    assert Rubric.objects.get(name="template").kind == "writer"
    assert LanguageModel.objects.filter(name="writer-model").exists()
    assert Sampler.objects.get(name="writing").temperature == 0.5


def test_imported_rating_queues_are_drafts_of_the_importer_without_raters(foreign_bundle, owner):
    imported = import_snapshot(foreign_bundle, owner)
    queue = RatingQueue.objects.get()
    assert (queue.status, queue.owner, queue.experiment) == ("draft", owner, imported.experiment)
    assert (queue.rubric.name, queue.raters_wanted, queue.attention_checks) == ("pairs", 2, {"thing-1": [1]})
    assert not queue.conditions.exists()
    assert imported.notes[-1].startswith(
        "Rating queues are drafts and ask about the answers of all conditions: reading."
    )


def test_models_of_judges_are_placeholders_and_the_import_names_them(foreign_bundle, owner):
    imported = import_snapshot(foreign_bundle, owner)
    assert set(LanguageModel.objects.values_list("is_active", flat=True)) == {False}
    assert any("Models of judges without an active endpoint: judge-model." in remark for remark in imported.notes)
    assert any("Models without an active endpoint: small." in remark for remark in imported.notes)
    assert any(
        remark.startswith("A curator must approve these before they are used: prompt ") and ", rubric " in remark
        for remark in imported.notes
    )


def test_an_imported_design_with_endpoints_can_be_launched_graded_and_rated(foreign_bundle, owner):
    experiment = import_snapshot(foreign_bundle, owner).experiment
    Endpoint.objects.update(is_active=True, base_url="http://127.0.0.1:9/v1", is_free=True)
    LanguageModel.objects.update(is_active=True)
    for kind in (Prompt, Rubric, TextSet):
        for row in kind.objects.filter(status="imported"):
            row.approve(by="test", reason="Read it")
    plan(experiment, by=owner)
    run = Run.objects.get()
    assert run.n_pending == 3
    Trial.objects.filter(run=run).delete()
    factories.plan_trials(run, answer=lambda item, dimension, index: "Fine.")
    Run.objects.filter(pk=run.pk).update(status="done")
    Experiment.objects.filter(pk=experiment.pk).update(status="active")
    experiment.refresh_from_db()
    reports = request_verdicts(experiment, Grader.objects.of_design(experiment), list(experiment.waves.all()), by=owner)
    assert [report.added for report in reports] == [3, 3]
    queue = RatingQueue.objects.get()
    queue.rubric, queue.attention_checks = make_rubric("stars"), {}
    queue.save()
    queues.open_queue(queue, by=owner, reason="ready")
    assert queue.answers.count() == 3


def test_an_existing_judge_with_equal_name_and_parts_is_used(tmp_path, owner):
    make_design()
    imported = import_snapshot(write(tmp_path), owner)
    assert imported.renamed == [("experiment pilot", "pilot-2"), ("rating queue reading", "reading-2")]
    assert (Grader.objects.count(), Panel.objects.count(), Rubric.objects.count()) == (3, 2, 5)
    assert (TextSet.objects.count(), ItemText.objects.count()) == (1, 3)
    assert "The judge strict is here already and is used." in imported.notes
    assert "The panel both is here already and is used." in imported.notes
    assert imported.experiment.graders == ["strict", "own"]


def test_a_different_judge_with_the_same_name_is_not_used(foreign_bundle, owner):
    mine = make_grader("strict", rubric=make_rubric(messages=[{"role": "user", "content": "Mine: {{answer}}"}]))
    Panel.objects.create(name="both").graders.set([mine])
    imported = import_snapshot(foreign_bundle, owner)
    assert imported.experiment.graders == ["strict-2", "own"]
    assert {("judge strict", "strict-2"), ("panel both", "both-2"), ("rubric standard", "standard-2")} <= set(
        imported.renamed
    )
    mine.refresh_from_db()
    assert mine.rubric.messages[0]["content"] == "Mine: {{answer}}"
    assert set(Panel.objects.get(name="both-2").graders.values_list("name", flat=True)) == {"strict-2", "own"}


def test_new_item_rubrics_of_existing_items_get_a_free_name(tmp_path, owner):
    make_design()
    path = write(tmp_path)
    TextSet.objects.get().retire(by="test", reason="replaced")
    imported = import_snapshot(path, owner)
    own = Grader.objects.of_design(imported.experiment)[1]
    assert (own.name, str(own.text_set), own.text_set.texts.count()) == ("own-2", "own-2@1", 3)
    assert Dataset.objects.count() == 1
    assert own.text_set.texts.get(item__key="thing-1").item.dataset == Dataset.objects.get()


def test_the_bundle_includes_judges_that_graded_but_are_not_in_the_design(tmp_path, settings, owner):
    with transaction.atomic():
        experiment = make_design()
        late = Grader.objects.get(name="unrelated")
        GradeCondition.objects.create(
            experiment=experiment, grade_condition_id="late--1", kind="judge", grader=late, rubric=late.rubric
        )
        path = write(tmp_path)
        transaction.set_rollback(True)
    imported = import_snapshot(path, owner)
    assert Grader.objects.filter(name="unrelated").exists()
    assert imported.experiment.graders == ["strict", "own"]
    assert Panel.objects.filter(name="others").exists()


def test_a_dry_run_lists_judges_and_queues_and_writes_nothing(foreign_bundle, owner, capsys):
    call_command("import_snapshot", str(foreign_bundle), "--dry-run", "--user", owner.username)
    output = capsys.readouterr().out
    for text in ("2 judges", "1 panel\n", "4 rubrics", "1 rating queue\n", "3 item texts", "Rating queues are drafts"):
        assert text in output, text
    assert "relationship" not in output
    for model in (Experiment, Dataset, Grader, Panel, Rubric, RatingQueue, LanguageModel, TextSet):
        assert not model.objects.exists()


@pytest.mark.parametrize(("kind", "name"), [("dataset", "photos@1"), ("design", "pilot"), ("analysis", "pilot")])
def test_a_recorded_bundle_is_verified_and_imported(owner, kind, name):
    path = RECORDED / f"{kind}-schema-{SCHEMA}.zip"
    verified = verify(path)
    assert (verified.problems, verified.schema, verified.kind) == ([], SCHEMA, kind)
    assert str(import_snapshot(path, owner).target) == name


def test_importing_a_design_does_not_spend_its_budget(foreign_bundle, owner):
    experiment = import_snapshot(foreign_bundle, owner).experiment
    assert (experiment.max_usd, experiment.spent_usd, experiment.status) == (Decimal(5), 0, "draft")
