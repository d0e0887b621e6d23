"""A queue with something to rate, and people to rate it."""

import hashlib
import io
from itertools import count

from django.test import Client
from PIL import Image

from datasets_app.image_storage import asset_file, thumbnail_file
from datasets_app.models import Asset
from evalsite.lib import permissions
from grading_app.models import RatingQueue
from grading_app.rating import queues, session
from tests import factories

SERIAL = count()


def make_image(number):
    """A small picture of its own colour, stored as an import leaves it."""
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), (number * 37 % 256, number * 91 % 256, number * 53 % 256)).save(buffer, "PNG")
    sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
    asset, _ = Asset.objects.get_or_create(
        sha256=sha256,
        defaults={"format": "png", "width": 80, "height": 60, "size": 99, "original_name": f"filed-{number}.png"},
    )
    for path in (asset_file(asset), thumbnail_file(asset)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())
    return asset


def make_things(slug="things", items=6, *, images=False, **fields):
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
    """A queue over plain things on one dimension, open."""
    owner = owner or factories.make_user(f"asker-{next(SERIAL)}", permissions.RESEARCHER)
    dataset = dataset or make_things(f"{name}-things", items)
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
    assignment = queues.assign(queue, user, by=queue.owner)
    if started:
        assert session.start(assignment)
    return assignment


def rate_all(assignment, value=4):
    """Rate what is left; `value` is a number, or a function of the rating that is due."""
    while waiting := session.due(assignment):
        chosen = value(waiting) if callable(value) else value
        assert session.rate(assignment, position=waiting.position, value=chosen, seconds=1.5)


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client
