"""A lab with content on every page, and a user in each role."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from datasets_app.models import Asset
from evalsite.lib import permissions
from grading_app.grading.rating import session
from runs_app.models import Run, TextSet, Tick, Worker
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.gradings import make_scale_rubric
from tests.factories.judges import make_grader, make_starter_rubric
from tests.factories.queues import make_image, make_queue
from tests.factories.tokens import make_token
from tests.shared_rows import shared_rows

NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Lab:
    people: dict
    experiment: object
    run: object
    trial: object
    failed: object
    model: object
    draft: object = None
    queue: object = None


def make_people():
    """Return a user in each role, by the name of the role."""
    return {
        "rater": factories.make_user("rater", permissions.RATER),
        "viewer": factories.make_user("viewer", permissions.VIEWER),
        "researcher": factories.make_user("researcher", permissions.RESEARCHER),
        "owner": factories.make_user("owner", permissions.RESEARCHER),
        "operator": factories.make_user("operator", permissions.OPERATOR),
    }


@shared_rows
def people():
    return make_people()


@shared_rows
def lab(people_of_file):
    return make_lab(people_of_file)


@shared_rows
def url_values(lab_of_file):
    return build_url_values(lab_of_file)


def make_lab(people):
    """Return a private running experiment: three items rated twice, one failed trial, a draft dataset."""
    dimension = factories.make_dimension("valence", labels={"1": "Very low", "7": "Very high"})
    prompt = factories.make_prompt(
        "rate", user="{{dimension_instructions}} {{input}}", system="You rate.", answer_format="rating"
    )
    experiment = factories.make_experiment(
        "pilot", owner=people["owner"], models=[factories.make_model(max_output_tokens=500)],
        dimensions=[dimension], prompts=[prompt], samples=2, status="active",
    )  # fmt: skip
    (run,) = factories.make_runs(experiment)
    trials = factories.plan_trials(run, answer=_answer)
    for trial in trials:
        factories.make_attempt(trial, outcome="permanent" if trial.status == "failed" else "ok")
    Run.objects.filter(pk=run.pk).update(errors={"bad_request": 1}, n_attempts=len(trials))
    _make_ticks(run)
    model = experiment.language_models.get()
    queue = _make_queue(people, dimension)
    return Lab(people, experiment, run, trials[0], trials[-1], model, _make_draft(people["owner"]), queue)


def _make_draft(curator):
    """Return a draft dataset with an image."""
    image = Asset.objects.create(sha256="ab" * 32, format="png", width=1, height=1, size=4)
    for path in (image.file, image.shared_thumbnail.path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x89PNG")
    items = [{"key": "one", "image": image}, {"key": "two", "input": "Two?"}]
    return factories.make_dataset("unready", items, approved=False, created_by=curator)


def _make_queue(people, dimension):
    """Return an open queue with an image first; the rater has started."""
    image = make_image(1)
    dataset = factories.make_dataset("rated", [{"key": "seen", "image": image}])
    queue = make_queue("looking", owner=people["owner"], dataset=dataset, dimensions=[dimension], raters_wanted=2)
    session.start_session(queue.assign(people["rater"], by=people["owner"]))
    return queue


def _answer(item, dimension, sample_idx):
    if item.key == "item-2":
        return None if sample_idx == 0 else factories.build_failed_fields("bad_request", "HTTP 400: no")
    return {"answer": f'{{"rating": {sample_idx + 3}}}', "rating": sample_idx + 3, "rating_step": "json"}


def _make_ticks(run):
    now = timezone.now().replace(microsecond=0)
    start = now - timedelta(seconds=now.timestamp() % 10)
    for back in range(1, 7):
        Tick.objects.create(run=run, at=start - back * timedelta(seconds=10), done=5, attempts=5)
    Worker.objects.create(name="host:1:0", host="bench", pid=1, in_flight=4, recorded=120)


@pytest.fixture
def nasty_lab(people):
    """Return a lab with hostile text in every field that users, files and models can fill."""
    dataset = factories.make_dataset("nasty", [{"key": NASTY, "input": NASTY, "target": NASTY, "category": NASTY}])
    dimension = factories.make_dimension("valence", title=NASTY, instructions=NASTY, labels={"1": NASTY})
    endpoint = factories.make_endpoint("lab", pause_reason=NASTY, paused_until=timezone.now() + timedelta(hours=1))
    model = factories.make_model("small", endpoint=endpoint, model=NASTY, price_source=NASTY)
    factories.make_preflight(model, "dead", actor=NASTY, error_class=NASTY[:40], error=NASTY)
    experiment = factories.make_experiment(
        "nasty", owner=people["owner"], dataset=dataset, models=[model], title=NASTY, description=NASTY,
        dimensions=[dimension], prompts=[factories.make_prompt("say", user=NASTY + "{{input}}")], status="active",
        max_usd=Decimal(1),
    )  # fmt: skip
    (run,) = factories.make_runs(experiment, status="stopped")
    Run.objects.filter(pk=run.pk).update(stop_reason=NASTY, errors={NASTY: 2})
    outcome = {
        "answer": NASTY, "reasoning": NASTY, "raw_response": NASTY, "error_class": "x<y", "error": NASTY,
        "served_model": NASTY, "served_provider": "<u>", "response_id": NASTY, "finish_reason": "<s>",
    }  # fmt: skip
    (trial,) = factories.plan_trials(run, answer=lambda *_: outcome)
    factories.make_attempt(trial, error=NASTY, error_class="x<y")
    return Lab(people, experiment, run, trial, trial, model)


def build_url_values(lab):
    """Return a value for each word in the rows of the access matrix."""
    return {
        "slug": lab.experiment.slug,
        "manifest": lab.experiment.manifests.create(content={}).pk,
        "snapshot": make_snapshot_row(lab.experiment),
        "run": lab.run.pk,
        "trial": lab.trial.pk,
        "asked": lab.trial.item_id,
        "annotation": annotate(lab.trial, "note", "Odd.", by=lab.people["owner"])[0].pk,
        "condition": lab.run.condition_id,
        "pair": make_pair(lab),
        "batch": lab.run.batches.create(endpoint_id=lab.model.endpoint_id).pk,
        "endpoint": lab.model.endpoint_id,
        "model": lab.model.pk,
        "dataset": lab.experiment.dataset.slug,
        "version": lab.experiment.dataset.version,
        "draft": lab.draft.slug,
        "one": lab.draft.version,
        "item": lab.draft.items.first().pk,
        "image": lab.draft.items.first().image_id,
        "queue": lab.queue.name,
        "apitoken": make_token(lab.people["owner"])[0].pk,
        "prompt": lab.experiment.prompts.get().name,
        "rubric": make_starter_rubric(name="judged-by", status="draft").name,
        "judge": make_grader("strict").name,
        "texts": TextSet.objects.get_or_create(name="own", dataset=lab.draft)[0].name,
    }


def make_pair(lab):
    """Return the key of a person's verdict on two answers, without a call."""
    rubric = make_scale_rubric("better", kind="pairwise")
    judge, _ = lab.experiment.grade_conditions.get_or_create(grade_condition_id="judge", kind="judge", rubric=rubric)
    first, second = lab.run.trials.order_by("pk")[:2]
    return judge.preferences.get_or_create(trial_a=first, trial_b=second, winner="a")[0].pk


def make_snapshot_row(experiment):
    """Return the digest of a snapshot with an empty file."""
    created = experiment.snapshots.create(digest="ab" * 32, counts={"rows": {"trials": 0, "gradings": 0}}, size=1)
    created.path.parent.mkdir(parents=True, exist_ok=True)
    created.path.write_bytes(b".")
    return created.digest
