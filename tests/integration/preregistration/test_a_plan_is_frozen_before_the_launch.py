"""A plan is frozen before the launch, never changes, and reports compare the results with it."""

import io
import re
import zipfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from datasets_app.models import Dataset
from evalsite.lib.permissions import RESEARCHER
from evalsite.lib.text.hashing import hash_content
from grading_app.models import BlindReading, ShareLink
from grading_app.publish.export.publication import write_publication
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections.study_design import write_preregistration
from grading_app.results.parametric.model_board import list_parametric_experiments
from runs_app import deletion
from runs_app.models import Experiment, LanguageModel, LedgerEntry, Preregistration, Run
from runs_app.planning.spec_io import build_spec
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team, make_user
from tests.factories.tampering import disable_triggers
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

PAGE = "/experiments/study/preregistration/"
PLAN = {
    "hypotheses": "The large model is right more often.",
    "primary_measure": "exact_match",
    "secondary_measures": "contains\ncontains\n",
    "contrasts": "large minus small, paired by item, two-sided",
    "exclusions": "none",
    "stopping_rule": "Every planned trial is asked.",
    "eligible_models": "small\nlarge",
}


@shared_rows
def team():
    return make_team()


@shared_rows
def study(team_of_file):
    models = [factories.make_model("small"), factories.make_model("large")]
    return factories.make_experiment("study", owner=team_of_file.owner, models=models)


@pytest.fixture
def frozen(study, team, client):
    client.force_login(team.owner)
    assert client.post(PAGE, PLAN).status_code == 302
    return Preregistration.objects.get()


def test_the_form_offers_the_design_and_freezes_the_plan(study, client, team):
    client.force_login(team.owner)
    page = client.get(PAGE)
    assert page.context["form"].initial["eligible_models"] == "large\nsmall"
    incomplete = client.post(PAGE, {**PLAN, "hypotheses": ""})
    assert incomplete.context["form"].errors.keys() == {"hypotheses"}
    assert not Preregistration.objects.exists()
    client.post(PAGE, PLAN)
    plan = Preregistration.objects.get()
    assert plan.content["secondary_measures"] == ["contains"]
    assert plan.content["design"] == hash_content(build_spec(study))
    assert plan.digest == hash_content(plan.content)
    assert plan.actor == "owner"
    shown = client.get(PAGE).content.decode()
    assert plan.digest in shown
    assert "The large model is right more often." in shown
    assert "Freeze plan" not in shown


def test_only_the_owner_freezes(study, client):
    client.force_login(make_user("stranger", RESEARCHER))
    assert client.post(PAGE, PLAN).status_code == 404
    assert not Preregistration.objects.exists()


def test_the_database_refuses_a_changed_a_second_and_a_deleted_plan(frozen, study):
    for change in (
        lambda: Preregistration.objects.update(digest="0" * 64),
        lambda: Preregistration.objects.update(content={}),
        lambda: Preregistration.objects.update(frozen_at=datetime(2020, 1, 1, tzinfo=UTC)),
        lambda: Preregistration.freeze(study, {"design": ""}, by="owner"),
        lambda: Preregistration.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()
    assert Preregistration.objects.get().digest == frozen.digest


def test_a_plan_after_the_launch_is_refused(study, client, team):
    factories.make_runs(study)
    with pytest.raises(DatabaseError, match="must precede the launch"), transaction.atomic():
        Preregistration.freeze(study, {"design": ""}, by="owner")
    client.force_login(team.owner)
    assert client.post(PAGE, PLAN).status_code in (200, 302)
    assert not Preregistration.objects.exists()


def test_the_plan_goes_with_its_experiment(frozen, study, team):
    deletion.delete(study, by=team.owner, reason="test")
    assert not Preregistration.objects.exists()


def test_the_text_is_for_an_archive(frozen, client):
    answer = client.get("/experiments/study/preregistration.md")
    text = answer.content.decode()
    assert answer["Content-Type"].startswith("text/markdown")
    assert frozen.digest in text
    assert "## Primary measure\n\nexact_match" in text
    assert "- small" in text


def describe(experiment):
    """Return the sentence that compares with the plan, and the role of each measure."""
    head, _, measures = write_preregistration(ReportSource(experiment))
    text = "".join(span.text for span in head.spans)
    return text, {row["measure"]: row["role"] for row in measures.table.rows}


@shared_rows
def answered(team_of_file):
    """Return an experiment with answers whose plan was frozen before them."""
    experiment = make_answered_experiment("ran", items=4, models=("small", "large"), owner=team_of_file.owner)
    for scorer in ("exact_match", "numeric"):
        make_gradings(experiment, scorer, lambda trial: trial.item.position % 2, kind="rule")
    return experiment


def plan_before(experiment, **changes):
    """Insert a plan as if it had preceded the launch."""
    content = {**PLAN, "secondary_measures": ["contains"], "eligible_models": ["small", "large"]}
    content |= {"design": hash_content(build_spec(experiment)), **changes}
    with disable_triggers():
        return Preregistration.freeze(experiment, content, by="owner")


def test_a_report_separates_planned_measures_from_exploratory_ones(answered):
    plan = plan_before(answered)
    text, roles = describe(answered)
    assert roles == {"Exact match": "primary", "Number within tolerance": "exploratory"}
    assert list(roles) == ["Exact match", "Number within tolerance"]
    assert plan.digest in text
    assert "Planned measures without scores: contains." in text


def test_a_report_names_what_differs_from_the_plan(answered):
    plan_before(answered, eligible_models=["small"], design="0" * 64)
    text, _ = describe(answered)
    assert "The design differs" in text
    assert "exploratory: large." in text


def test_a_report_without_a_plan_says_that_every_measure_is_exploratory(answered):
    (block,) = write_preregistration(ReportSource(answered))
    assert "every measure is exploratory" in "".join(span.text for span in block.spans)


@shared_rows
def begun(answered_of_file):
    plan_before(answered_of_file)
    Run.objects.filter(experiment=answered_of_file).update(n_pending=1)
    return answered_of_file


@pytest.fixture
def running(begun, team, client):
    """Return a preregistered experiment with answers whose runs have not ended. Its owner is logged in."""
    client.force_login(team.owner)
    return begun


RESULTS = "/experiments/ran/results/"
PAGES_OF_SCORES = [
    RESULTS, "/experiments/ran/matrix/", "/experiments/ran/analysis/", "/experiments/ran/report/",
    "/experiments/ran/export/trials.csv", "/experiments/ran/waves/", "/trials/?experiment=ran",
    "/api/v1/experiments/ran/results",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES_OF_SCORES)
def test_no_page_of_scores_names_a_model_until_the_plan_ran(page, running, client):
    text = re.sub(r"<style.*?</style>|<[^>]+>", "", client.get(page).content.decode(), flags=re.DOTALL)
    assert not [name for name in ("small", "large") if name in text]
    assert "Model A" in client.get(RESULTS).content.decode()


def test_each_reader_of_a_comparison_sees_letters_until_the_plan_ran(running, client, team):
    first, second = running.conditions.order_by("pk").values_list("pk", flat=True)
    client.force_login(team.operator)
    page = client.get(f"/compare/?a=ran:{first}&b=ran:{second}").content.decode()
    assert "Model A" in page
    assert BlindReading.objects.get().reader == team.operator


def test_pages_that_run_the_experiment_stay_open(running, client):
    assert "Model A" in client.get(RESULTS).content.decode()
    for page in ("", "progress/", "preregistration/", "ledger/"):
        text = client.get(f"/experiments/ran/{page}").content.decode()
        assert "small" in text or page == "ledger/", page
        assert "names stay hidden" not in text, page
    report = client.get("/experiments/ran/report/").content.decode()
    assert "its names stay hidden until its runs have ended" in " ".join(report.split())
    assert "Reveal model names" not in report


SHARED = ["report/", "leaderboard/", "figures/", "report/report.html", "report/figures/means.svg", "figures/means.svg"]


@pytest.mark.parametrize("part", SHARED)
def test_a_share_link_shows_no_results_until_the_plan_ran(part, running, client, team):
    expires = timezone.now() + timedelta(days=1)
    _, token = ShareLink.create(running, ShareLink.Scope.EXPERIMENT, expires, by=team.owner)
    page = Client().get(f"/shared/{token}/{part}")
    assert page.status_code == (200 if part.endswith("/") else 404)
    assert ("Its results appear here after its runs have ended" in page.content.decode()) == part.endswith("/")
    assert Client().get(f"/shared/{token}/design/").status_code == 200
    for answer in (page, client.get(f"/shared/{token}/{part}")):
        text = re.sub(r"<style.*?</style>|<[^>]+>", "", answer.content.decode(), flags=re.DOTALL)
        assert not [name for name in ("small", "large") if name in text]
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert "appear here after" not in Client().get(f"/shared/{token}/{part}").content.decode()


def test_status_has_scores_only_after_the_plan_ran(running, client):
    status = client.get("/api/v1/experiments/ran/status").json()
    assert (status["scores"], status["points"]) == ([], [])
    assert "the plan is preregistered: scores are left out until its runs have ended" in status["warnings"]
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert client.get("/api/v1/experiments/ran/status").json()["scores"]


HIDDEN = ("done", "failed", "attempts", "spent_usd")


@pytest.mark.parametrize("part", ["runs", "status"])
def test_the_api_counts_what_came_of_one_runs_calls_only_after_the_plan_ran(part, running, client):
    def read_runs():
        content = client.get(f"/api/v1/experiments/ran/{part}").json()
        return content["items"] if part == "runs" else content["runs"]

    assert [row[name] for row in read_runs() for name in HIDDEN] == [None] * 8
    assert [(row["trials"], row["ended"]) for row in read_runs()] == [(5, 4), (5, 4)]
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert [(row["done"], row["ended"]) for row in read_runs()] == [(4, 4), (4, 4)]


def test_the_command_counts_what_came_of_one_runs_calls_only_after_the_plan_ran(running, capsys):
    call_command("status", "ran")
    assert capsys.readouterr().out.count("4 ended, 1 pending") == 2
    Run.objects.filter(experiment=running).update(n_pending=0)
    call_command("status", "ran")
    assert capsys.readouterr().out.count("4 done") == 2


def test_costs_by_model_are_one_line_until_the_plan_ran(running, client):
    with disable_triggers():
        for run in running.runs.all():
            LedgerEntry.objects.create(run=run, at=timezone.now(), attempts=3, paid_usd=Decimal("0.5"))
    page = "/experiments/ran/ledger/?by=model"
    (line,) = client.get(page).context["lines"]
    assert (line.label, line.sums.attempts) == ("Preregistered, until its runs have ended", 6)
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert {line.label for line in client.get(page).context["lines"]} == {"small", "large"}


def test_lists_of_all_experiments_ask_until_the_plan_ran_and_those_of_another_open(running, client, team):
    other = make_answered_experiment("other", items=2, models=("third",), owner=team.owner)
    asks = "names stay hidden"
    for query in ("", f"?run={running.runs.first().pk}", "?experiment=none"):
        assert asks in " ".join(client.get(f"/trials/{query}").content.decode().split()), query
    for query in ("?experiment=other", f"?run={other.runs.get().pk}"):
        page = client.get(f"/trials/{query}").content.decode()
        assert "third" in page
        assert asks not in page
    assert not BlindReading.objects.filter(experiment=other).exists()
    Run.objects.filter(experiment=running).update(n_pending=0)
    client.post("/experiments/ran/blind/reveal/")
    assert "large" in client.get("/trials/").content.decode()


def test_the_progress_of_a_paused_plan_has_no_scores(running, client):
    page = "/experiments/ran/progress/"
    Run.objects.filter(experiment=running).update(status="paused")
    assert client.get(page).context["ending"] is None
    Run.objects.filter(experiment=running).update(n_pending=0, status="done")
    assert client.get(page).context["ending"]["scores"]


def test_a_retry_of_one_run_counts_its_failed_trials_only_after_the_plan_ran(running, client):
    run = Run.objects.filter(experiment=running).earliest("pk")
    with disable_triggers():
        run.trials.update(status="failed", error_class="timeout")
        Run.objects.filter(pk=run.pk).update(status="done", n_failed=F("n_done"), n_done=0)
    answer = client.post(f"/runs/{run.pk}/control/retry/", follow=True)
    assert [str(message) for message in answer.context["messages"]] == ["Failed trials will be retried."]
    assert not re.search(r"\d", run.history.first().reason)


def test_names_are_revealed_after_the_plan_ran(running, client):
    client.get(RESULTS)
    client.post("/experiments/ran/blind/reveal/")
    assert BlindReading.objects.get().revealed_at is None
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert "Reveal model names" in client.get(RESULTS).content.decode()
    client.post("/experiments/ran/blind/reveal/")
    assert BlindReading.objects.get().revealed_at is not None
    assert "Model A" not in client.get(RESULTS).content.decode()


def test_a_reader_after_the_plan_ran_and_one_of_a_cancelled_plan_see_names(running, client):
    Run.objects.filter(experiment=running).update(status="cancelled")
    assert "Model A" not in client.get(RESULTS).content.decode()
    assert not BlindReading.objects.exists()


def test_the_leaderboard_leaves_out_a_plan_that_has_not_run(running, team):
    with disable_triggers():
        Dataset.objects.filter(pk=running.dataset_id).update(recipe={"parametric": True})
    assert list_parametric_experiments(team.owner) == []
    Run.objects.filter(experiment=running).update(n_pending=0)
    assert list_parametric_experiments(team.owner) == [running]


def test_a_publication_has_the_plan(answered):
    plan = plan_before(answered)
    Run.objects.filter(experiment=answered).update(status="done")
    out = io.BytesIO()
    write_publication(answered, out)
    assert plan.digest in zipfile.ZipFile(out).read("preregistration.md").decode()


def test_a_draft_can_still_change_after_the_plan_and_the_report_will_say_so(frozen, study):
    study.language_models.add(LanguageModel.objects.get(name="small"), factories.make_model("third"))
    assert hash_content(build_spec(Experiment.objects.get(pk=study.pk))) != frozen.content["design"]
