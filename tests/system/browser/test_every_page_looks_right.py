"""Each page at two widths in two themes: no serious accessibility fault, no sideways scrolling, a quiet console."""

import hashlib
import shutil
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone
from PIL import Image

from datasets_app.models import Asset
from evalsite.lib.history import record_changes
from grading_app.models import GradeCondition, Grading
from runs_app.models import CachedAnswer, Experiment, LanguageModel, Run, Tick, Trial, Worker
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.manifests import write_manifest
from tests import factories
from tests.factories.tampering import disable_triggers

ANSWER = '{"rating": %d, "reasoning": "The scene is bright and people are smiling, so a typical adult would like it."}'


PHOTOGRAPH = Path(__file__).parents[3] / "samples" / "photographs" / "coffee-cup.jpg"


def make_photograph():
    sha256 = hashlib.sha256(PHOTOGRAPH.read_bytes()).hexdigest()
    with Image.open(PHOTOGRAPH) as image:
        width, height = image.size
    asset = Asset.objects.create(
        sha256=sha256, format="jpeg", width=width, height=height, size=PHOTOGRAPH.stat().st_size
    )
    for path in (asset.file, asset.shared_thumbnail.path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOGRAPH, path)
    return asset


@pytest.fixture
def busy_site(owner, operator, settings, tmp_path):
    """An experiment of two models and two prompts on forty items, half completed, and a draft."""
    settings.MEDIA_ROOT = tmp_path
    photograph = make_photograph()
    items = [
        {**factories.build_question(number), "key": f"photo-{number:03}", "image": photograph} for number in range(40)
    ]
    dataset = factories.make_dataset("photographs", items)
    lab = factories.make_endpoint("rehearsal", in_flight=7, max_concurrency=16)
    slow = factories.make_endpoint("openrouter", provider="openrouter", base_url="", key_env="OPENROUTER_API_KEY")
    slow.paused_until, slow.pause_reason = timezone.now() + timedelta(minutes=5), "HTTP 429: slow down"
    slow.save(update_fields=["paused_until", "pause_reason"])
    models = [
        factories.make_model("sim-large", endpoint=lab, price_source="vendor's list", price_date=date(2026, 2, 1)),
        factories.make_model("sim-small", endpoint=slow),
    ]
    factories.make_preflight(models[1], cost_usd=Decimal("0.00003"))
    factories.make_model("new-model", endpoint=slow, input_price=None, output_price=None)
    prompts = [
        factories.make_prompt("affect-rating", answer_format="rating_with_reasoning",
                              system="You take part in a study of how people feel.\nAnswer as a typical adult would.",
                              user="{{image}}{{input}}\n\n{{dimension_instructions}}\nRate from {{scale_min}} to "
                                   "{{scale_max}}:\n{{scale_labels}}"),
        factories.make_prompt("plain", user="{{input}} {{dimension_instructions}}"),
    ]  # fmt: skip
    dimension = factories.make_dimension("valence", labels={"1": "Very negative", "4": "Neutral", "7": "Very positive"})
    experiment = factories.make_experiment(
        "affect-pilot", owner=owner, dataset=dataset, models=models, prompts=prompts, dimensions=[dimension],
        samplers=[factories.make_sampler("sampled", temperature=1.0, max_tokens=300)], samples=3, status="active",
        title="How pleasant are the sample photographs to two models?", scorers=["rating"], cache_buster=True,
        spent_usd=Decimal("1.2345"), reserved_usd=Decimal("0.21"),
    )  # fmt: skip
    runs = factories.make_runs(experiment)
    for number, run in enumerate(runs):
        factories.plan_trials(run, answer=make_outcome(number))
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(
        errors={"rate_limit": 14, "timeout": 3, "refusal": 2}, n_attempts=190
    )
    Run.objects.filter(pk=runs[3].pk).update(status="stopped", stop_reason="6 of 60 attempts failed permanently (10 %)")
    record_changes([(experiment, "draft", "active")], by=owner, reason="launched")
    record_changes([(runs[0], "running", "paused"), (runs[0], "paused", "running")], by=owner, reason="Lunch")
    factories.make_runs(experiment, wave=1, status="paused")
    make_activity(runs)
    write_manifest(experiment, by=owner, pilot=20, approved=estimate(experiment, pilot=20))
    for trial in Trial.objects.filter(run=runs[0]).exclude(status="pending")[:12]:
        factories.make_attempt(trial, outcome="permanent" if trial.status == "failed" else "ok")
        CachedAnswer.objects.create(key=f"key-{trial.pk}", trial=trial)
    with disable_triggers():
        runs[0].attempt_rows.update(served_model="vendor/sim-large-2026-01")
    with disable_triggers():
        runs[0].attempt_rows.filter(pk=runs[0].attempt_rows.first().pk).update(served_model="vendor/sim-large-2025-11")
    make_gradings(experiment)
    factories.make_experiment("next-idea", owner=owner, dataset=dataset, models=models, prompts=prompts[1:])
    return experiment


def make_outcome(number):
    def outcome(item, dimension, sample_idx):
        place = item.position + 40 * sample_idx
        if place > 90 - 20 * number:
            return None
        if place % 23 == 7:
            return factories.build_failed_fields("timeout", "No answer within 60 s")
        rating = 1 + (place * 5 + number) % 7
        return {"answer": ANSWER % rating, "rating": rating, "rating_step": "json", "truncated": place % 31 == 5,
                "reasoning": "The scene is bright.", "served_model": "vendor/sim-large-2026-01"}  # fmt: skip

    return outcome


def make_gradings(experiment):
    condition = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="rating--0123456789ab", scorer="rating"
    )
    done = Trial.objects.filter(run__experiment=experiment, status="done")[:50]
    Grading.objects.bulk_create(
        Grading(trial=trial, condition=condition, score=trial.rating, score_raw=str(trial.rating), parse_ok=True)
        for trial in done
    )


def make_activity(runs):
    now = timezone.now().replace(microsecond=0)
    start = now - timedelta(seconds=now.timestamp() % 10)
    Tick.objects.bulk_create(
        Tick(run=run, at=start - age * timedelta(seconds=10), done=6 + (age * 5 + number) % 7, failed=age % 9 == 0)
        for age in range(1, 90)
        for number, run in enumerate(runs)
    )
    Worker.objects.create(name="bench-1:4711:0", host="bench-1", pid=4711, in_flight=16, recorded=1204, version="0.1.0")
    lost_worker = Worker.objects.create(name="bench-2:17:0", host="bench-2", pid=17, in_flight=8, recorded=300)
    Worker.objects.filter(pk=lost_worker.pk).update(seen_at=now - timedelta(minutes=4))
    Worker.objects.create(name="bench-1:99:0", host="bench-1", pid=99, recorded=9, stopped_at=now)


def list_addresses(experiment):
    run = experiment.runs.first()
    done = run.trials.filter(status="done").first()
    failed = run.trials.filter(status="failed").first()
    model = LanguageModel.objects.first()
    factories.make_attempt(done, list_usd=Decimal("0.001"), cache_read_tokens=80)
    batch = run.batches.create(endpoint_id=model.endpoint_id, status="submitted", provider_id="batch_" + 8 * "0af1")
    slug = [experiment.slug]
    return {
        "home": reverse("home"),
        "experiments": reverse("experiment_list"),
        "experiment new": reverse("experiment_new"),
        "experiment edit": reverse("experiment_edit", args=["next-idea"]),
        "experiment share": reverse("experiment_share", args=slug),
        "experiment file": reverse("experiment_from_file"),
        "design": reverse("experiment_detail", args=slug),
        "design draft": reverse("experiment_detail", args=["next-idea"]),
        "launch": reverse("experiment_launch", args=["next-idea"]),
        "launch pilot": reverse("experiment_launch", args=slug) + "?pilot=400",
        "workers": reverse("worker_list"),
        "batches": reverse("batch_list"),
        "progress": reverse("experiment_progress", args=slug),
        "progress before": reverse("experiment_progress", args=["next-idea"]),
        "costs": reverse("experiment_ledger", args=slug),
        "costs of the lab": reverse("ledger") + "?by=experiment",
        "costs before": reverse("experiment_ledger", args=["next-idea"]),
        "run": reverse("run_detail", args=[run.pk]),
        "batch": reverse("batch_detail", args=[batch.pk]),
        "trials": reverse("trial_list") + "?experiment=affect-pilot",
        "trials nothing": reverse("trial_list") + "?item=nowhere",
        "trial": reverse("trial_detail", args=[done.pk]) + "?experiment=affect-pilot",
        "trial failed": reverse("trial_detail", args=[failed.pk]),
        "endpoints": reverse("endpoint_list"),
        "endpoint models": reverse("endpoint_models", args=[model.endpoint_id]),
        "endpoint edit": reverse("endpoint_edit", args=[model.endpoint_id]),
        "model edit": reverse("model_edit", args=[model.pk]),
        "password": reverse("password_change"),
    }


def test_every_page_of_a_busy_site_looks_right(busy_site, operator, visitor, checked_in_all_views):
    page = visitor(operator)
    for name, address in list_addresses(busy_site).items():
        assert page.goto(address).ok, address
        checked_in_all_views(page, name)


def test_an_empty_site_names_the_next_step(operator, visitor, checked_in_all_views):
    page = visitor(operator)
    for name in ("home", "experiment_list", "trial_list", "endpoint_list"):
        page.goto(reverse(name))
        checked_in_all_views(page, f"empty-{name}")
    assert not Experiment.objects.exists()


def test_the_login_pages_look_right(transactional_db, visitor, checked_in_all_views):
    page = visitor()
    page.goto(reverse("login"))
    checked_in_all_views(page, "login")
