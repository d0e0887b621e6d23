"""Helpers of the blinding tests: a client that records all responses, a rating session, and a study with secrets."""

import re

from datasets_app.models import Asset
from grading_app.grading.rating import session
from grading_app.models import GradeCondition
from tests import factories
from tests.factories.queues import make_image, sign_in

N_QUESTIONS = 4


class RecordingClient:
    """A rater's browser that records every byte: redirect addresses, headers, cookies and bodies."""

    def __init__(self, user):
        self.client, self.received = sign_in(user), []

    def get(self, address):
        return self._record(self.client.get(address))

    def post(self, address, data=None):
        return self._record(self.client.post(address, data or {}))

    def join_received(self):
        return "\n".join(self.received)

    def _record(self, response):
        body = b"".join(response.streaming_content) if response.streaming else response.content
        self.received.append("\n".join(f"{name}: {value}" for name, value in response.headers.items()))
        self.received.append(remove_form_tokens(body.decode("latin-1")))
        self.received.append(remove_form_tokens(str(response.cookies)))
        return response if response.streaming else self._follow(response)

    def _follow(self, response):
        return self.get(response["Location"]) if response.status_code in (301, 302) else response


def remove_form_tokens(text):
    """Remove form tokens, because 64 random characters may contain any short word. Keep digests."""
    return re.sub(r"\b(?![0-9a-f]{64}\b)[A-Za-z0-9]{64}\b", "", text)


def is_secret_in(text, secret):
    """Return whether the text contains the secret. Numbers match as a whole: 1795177745.037 does not contain 5.037."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+", secret):
        return bool(secret) and secret in text
    return re.search(rf"(?<![0-9]){re.escape(secret)}", text) is not None


def parse_rating_page(response):
    """Return the form's `shown` value and the image's address, each None if the page has none."""
    html = response.content.decode()
    shown = re.search(r'name="shown" value="([^"]+)"', html)
    image = re.search(r'src="(/ratings/[^"]+)"', html)
    return shown and shown[1], image and image[1]


def strip_rating_page(response):
    """Return the page without form tokens, its position in the session, the words of a question and of an answer."""
    html = response.content.decode()
    html = re.sub(r'(csrfmiddlewaretoken" value|"X-CSRFToken": |name="shown" value)[^>]+', "", html)
    html = re.sub(r"image/\d+/|\d+ of \d+|value=\"\d+\" aria-label|disabled", "", html)
    html = re.sub(r"What is shown, \d\?|A plain answer to \d\.", "", html)
    return re.sub(r"\s+", " ", html)


def collect_rating_pages(study, rater):
    """Rate everything that is due, and return the different pages by kind of unit, without their words."""
    pages = {}
    while waiting := rater.find_next_rating():
        page = sign_in(rater.user).get(f"/ratings/{study.name}/")
        pages.setdefault(waiting.kind, set()).add(strip_rating_page(page))
        session.rate(rater, position=waiting.position, value=3, seconds=1)
    return pages


def rate_whole_session(queue, user, *, value, undo_at, forge_at):
    """Rate all items as this user, with undone, repeated and forged ratings; return the client.

    `value(step)` is the rating of a step.
    """
    rater = RecordingClient(user)
    page = rater.get("/")
    page = rater.post(f"/ratings/{queue.name}/start/")
    for step in range(40):
        shown, image = parse_rating_page(page)
        if not shown:
            break
        assert rater.get(image).status_code == 200
        page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": shown, "rating": str(value(step))})
        if step in undo_at:
            page = rater.post(f"/ratings/{queue.name}/undo/")
        if step == forge_at:
            rater.post(f"/ratings/{queue.name}/rate/", {"shown": shown, "rating": "4"})
            page = rater.post(f"/ratings/{queue.name}/rate/", {"shown": "made up", "rating": "99"})
    for address in ("/ratings/", "/ratings/queues/", "/datasets/", "/trials/", "/ratings/none/", image or "/nothing/"):
        rater.get(address)
    return rater


def make_answer(item, _dimension, _index):
    return {"answer": f"A plain answer to {item.position}.", "reasoning": "Thought out.", "response_id": "resp-77",
            "served_model": "vendor/served-9", "raw_response": "Raw words."}  # fmt: skip


def make_experiment_with_secrets(*, has_norms):
    """Return an experiment of two models on questions whose revealing fields contain words that occur nowhere else."""
    items = [
        {
            "key": f"keyword-{number}", "category": f"categorical-{number % 2}", "input": f"What is shown, {number}?",
            "target": f"targeted-{number}", "metadata": {"source": f"metadatum-{number}"}, "image": make_image(number),
            "grading_scheme": f"schematic-{number}",
            **({"norms": {"valence": 4.8371 + number / 10}} if has_norms else {}),
        }
        for number in range(N_QUESTIONS)
    ]  # fmt: skip
    experiment = factories.make_experiment(
        "experimental", title="Titular", dataset=factories.make_dataset("slugged-set", items),
        models=[factories.make_model(name) for name in ("alphonsina", "bettina")],
        prompts=[factories.make_prompt("prompted", system="Systemic words.", user="Wrapped: {{image}}{{input}}")],
        samplers=[factories.make_sampler("sampled-warm", temperature=1.25)],
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=make_answer)
    return experiment


def list_secrets_of_answers(queue):
    """Return the words that would tell a rater who wrote an answer or how others graded it."""
    experiment = queue.experiment
    words = {"experimental", "Titular", "slugged-set", "alphonsina", "bettina", "prompted", "Systemic", "Wrapped"}
    words |= {"sampled-warm", "judgemental", "Reasoned so", "Thought out", "resp-77", "served-9", "Raw words"}
    words |= {"goodness-internal", "somebody-else", queue.owner.username, queue.dataset.content_hash}
    words |= set(experiment.conditions.values_list("condition_id", flat=True))
    words |= set(GradeCondition.objects.values_list("grade_condition_id", flat=True))
    for item in queue.dataset.items.all():
        words |= {item.key, item.category, item.target, item.metadata["source"], item.grading_scheme}
    for asset in Asset.objects.all():
        words |= {asset.sha256, asset.sha256[:12], asset.original_name}
    return words
