"""Rating queues with items or answers, and their raters."""

import hashlib
import io
from itertools import count

from django.test import Client
from PIL import Image

from datasets_app.models import Asset
from evalsite.lib import permissions
from grading_app.grading.rating import queues, session
from grading_app.models import RatingQueue, Rubric
from tests import factories
from tests.factories.gradings import make_answered_experiment

SERIAL = count()


def make_image(number):
    """Create a small image with its own colour, stored like an imported image."""
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), (number * 37 % 256, number * 91 % 256, number * 53 % 256)).save(buffer, "PNG")
    sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
    asset, _ = Asset.objects.get_or_create(
        sha256=sha256,
        defaults={"format": "png", "width": 80, "height": 60, "size": 99, "original_name": f"filed-{number}.png"},
    )
    for path in (asset.file, asset.shared_thumbnail.path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())
    return asset


def make_numbered_items(slug="things", items=6, *, images=False, **fields):
    rows = [
        {
            "key": f"thing-{number}",
            "input": f"What you see is number {number}.",
            "category": "odd-ones" if number % 2 else "even-ones",
            "image": make_image(number) if images else None,
        }
        for number in range(items)
    ]
    return factories.make_dataset(slug, rows, **fields)


def make_queue(name="study", *, items=6, owner=None, dimensions=None, opened=True, dataset=None, **fields):
    """Create a queue of plain items on one dimension. It is open unless `opened` is false."""
    owner = owner or factories.make_user(f"asker-{next(SERIAL)}", permissions.RESEARCHER)
    dataset = dataset or make_numbered_items(f"{name}-things", items)
    queue = RatingQueue.objects.create(
        name=name, owner=owner, dataset=dataset,
        **{"title": "How do these feel?", "instructions": "Go by your first feeling.", "raters_wanted": 3, **fields},
    )  # fmt: skip
    queue.dimensions.set(dimensions or [factories.make_dimension("valence")])
    if opened:
        queues.open_queue(queue, by=owner, reason="ready")
    return queue


def make_rater(queue, name=None, *, started=False):
    user = factories.make_user(name or f"person-{next(SERIAL)}", permissions.RATER)
    assignment = queue.assign(user, by=queue.owner)
    if started:
        assert session.start_session(assignment)
    return assignment


def rate_all(assignment, value=4):
    """Rate all remaining items. `value` is a number or a function of the due rating."""
    while due := assignment.find_next_rating():
        chosen = value(due) if callable(value) else value
        assert session.rate(assignment, position=due.position, value=chosen, seconds=1.5)


def sign_in(user):
    """Return a client that is signed in as the user."""
    client = Client()
    client.force_login(user)
    return client


GOOD = {"title": "Good answer", "instructions": "How good is this answer?", "low": 1, "high": 5}


def make_answer_queue(
    name="reading", *, experiment=None, dimensions=None, opened=True, conditions=(), by=None, **fields
):
    experiment = experiment or make_answered_experiment(f"{name}-study", items=6, models=["small", "large"], samples=2)
    queue = RatingQueue.objects.create(
        name=name, owner=experiment.owner, dataset=experiment.dataset, subject="answers", experiment=experiment,
        **{"title": "How good?", "instructions": "Read the whole answer.", "raters_wanted": 2, **fields},
        rubric=by,
    )  # fmt: skip
    queue.dimensions.set([factories.make_dimension(f"{name}-goodness", **GOOD)] if dimensions is None else dimensions)
    queue.conditions.set(conditions)
    if opened:
        queues.open_queue(queue, by=experiment.owner, reason="ready")
    return queue


CRITERIA = [
    {"name": "correct", "description": "Agrees with the reference answer", "weight": 3},
    {"name": "complete", "description": "Leaves nothing out"},
]


LABELS = [{"name": "wrong", "score": 0}, {"name": "partly", "score": 0.25}, {"name": "right", "score": 1}]


RUBRIC_KINDS = {
    "criteria": {"criteria": CRITERIA},
    "label": {"labels": LABELS},
    "score": {"scale_min": 1, "scale_max": 5},
    "pairwise": {},
}


def make_strict_rubric(kind="criteria", *, status="approved", text="{{target}}", name="", **fields):
    answer_turn = "{{answer_a}} {{answer_b}}" if kind == "pairwise" else "{{answer}}"
    criteria = "{{criteria}} " if kind == "criteria" else ""
    turns = [{"role": "system", "content": f"Be strict. {criteria}{{{{verdict_form}}}} {text}"},
             {"role": "user", "content": answer_turn}]  # fmt: skip
    fields = {**RUBRIC_KINDS[kind], **fields}
    return Rubric.objects.create(name=name or f"strict-{kind}", kind=kind, messages=turns, status=status, **fields)


def make_rubric_queue(kind="criteria", *, items=4, samples=1, name="reading", rubric=None, **fields):
    study = fields.pop("experiment", None) or make_answered_experiment(
        f"{name}-study", items=items, models=["small", "large"], samples=samples
    )
    rubric = rubric or make_strict_rubric(kind)
    return make_answer_queue(name, experiment=study, dimensions=[], by=rubric, **fields)
