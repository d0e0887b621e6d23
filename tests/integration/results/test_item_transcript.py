"""The transcript of an item: what each condition of an experiment was asked, what it answered, and all verdicts."""

import re
import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from lxml import html

from evalsite.lib import permissions
from grading_app.grading.rating.queues import open_queue
from grading_app.grading.scoring import grade
from grading_app.models import BlindReading
from grading_app.results import item_answers
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_image, make_queue, make_rater, rate_all
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
TEN_MB = 10_000_000
PICTURE = {"role": "user", "content": "{{image}} {{input}}"}


@pytest.fixture
def owner():
    return factories.make_user("owner", permissions.RESEARCHER)


def make_study(owner, *, items=3, models=("large", "small"), answer=lambda item, *_: item.target, **fields):
    experiment = factories.make_experiment(
        "sums", owner=owner, dataset=fields.pop("dataset", None) or factories.make_dataset("sums", items),
        models=[factories.make_model(name) for name in models], **{"scorers": ["numeric"], **fields},
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=answer)
    grade(experiment, by="test")
    return experiment


def open_transcript(client, experiment, key="item-1", **query):
    client.force_login(experiment.owner)
    item = experiment.dataset.items.get(key=key)
    return client.get(reverse("item_transcript", args=[experiment.slug, item.pk]), query)


def test_messages_that_conditions_share_are_shown_once_above_their_answers(client, owner):
    experiment = make_study(owner, answer=lambda item, _, index: f"The sum is {item.target}.")
    page = open_transcript(client, experiment)
    (conversation,) = page.context["transcript"].conversations
    assert [cell.label for cell in conversation.cells] == ["large", "small"]
    text = page_text(page)
    assert text.count("turn turn-user") == 1
    assert text.count("turn turn-assistant") == 2
    assert text.count("✓ right") == 4, "in the overview and beside each answer"


def test_each_prompt_has_its_own_messages(client, owner):
    prompts = [
        factories.make_prompt(name, messages=[{"role": "user", "content": f"{name}: {{{{input}}}}"}])
        for name in ("brief", "careful")
    ]
    experiment = make_study(owner, prompts=prompts)
    conversations = open_transcript(client, experiment).context["transcript"].conversations
    assert [[cell.label for cell in each.cells] for each in conversations] == [
        ["large · brief", "small · brief"], ["large · careful", "small · careful"],
    ]  # fmt: skip
    assert [each.turns.turns[-1].text.split(":")[0] for each in conversations] == ["brief", "careful"]


def test_it_shows_messages_image_reasoning_verdicts_and_peoples_ratings(client, owner):
    items = [{"key": "face", "input": "How pleasant?", "target": "4", "image": make_image(1)}]
    experiment = make_study(
        owner, models=("one",), dataset=factories.make_dataset("faces", items),
        prompts=[factories.make_prompt("look", messages=[PICTURE])],
        answer=lambda *_: {"answer": "It is a 4.", "reasoning": "The mouth smiles."},
    )  # fmt: skip
    rubric = make_scale_rubric("strict", low=0, high=1)
    make_gradings(experiment, "judge", lambda trial: 1.0, rubric=rubric, reasoning="It names the number.")
    of_answers = make_answer_queue("reading", experiment=experiment)
    of_items = make_queue("looking", owner=owner, dataset=experiment.dataset, opened=False)
    of_items.dimensions.set([factories.make_dimension("arousal")])
    open_queue(of_items, by=owner, reason="ready")
    for queue, values in ((of_answers, (2, 3)), (of_items, (5, 6, 7))):
        for value in values:
            rate_all(make_rater(queue, started=True), value)
    page = html.fromstring(open_transcript(client, experiment, "face").content)
    text = " ".join(page.xpath("//main")[0].text_content().split())
    for part in ("How pleasant?", "It is a 4.", "The mouth smiles.", "It names the number.", "✓ right"):
        assert part in text, part
    assert len(page.xpath("//main//img[@alt='Image of face']")) == 1
    assert "2.50 people, reading-goodness, n 2" in text
    assert re.search(r"People, arousal ?6\.00 n 3", text), text


def test_calls_of_tools_stand_with_the_answer_that_made_them(client, owner):
    call = {"id": "1", "function": "search", "arguments": {"query": "one plus one"}}
    results = iter(["two", "two", "two", "three", "three", "three"])

    def answer(item, *_):
        messages = [
            {"role": "user", "content": "What is 1 + 1?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": f"It is {next(results)}.", "function": "search"},
            {"role": "assistant", "content": item.target},
        ]
        return {"answer": item.target, "messages": messages}

    experiment = make_study(owner, models=["agent", "other"], answer=answer)
    page = open_transcript(client, experiment)
    (conversation,) = page.context["transcript"].conversations
    assert [turn.text for turn in conversation.turns.turns] == ["What is 1 + 1?"]
    steps = [[turn.note for _, turn in cell.answers[0].steps] for cell in conversation.cells]
    assert steps == [["calls search", "search"]] * 2
    text = page_text(page)
    assert text.count("one plus one") == 2
    assert "It is two." in text
    assert "It is three." in text


def test_peoples_ratings_of_an_answer_stand_beside_it(client):
    queue = make_answer_queue("reading")
    for value in (3, 4):
        rate_all(make_rater(queue, started=True), value)
    experiment = queue.experiment
    trial = queue.answers.first().trial
    answers = {
        answer.trial.pk: answer.people
        for cell in open_transcript(client, experiment, trial.item.key).context["transcript"].cells
        for answer in cell.answers
    }
    assert answers[trial.pk] == [(queue.dimensions.get().name, 3.5, 2)]


def test_a_blind_reader_sees_letters(client, owner):
    experiment = make_study(owner, models=["gpt-grand", "gpt-petit"])
    BlindReading.start(experiment, owner)
    text = page_text(open_transcript(client, experiment))
    assert "Model A" in text
    assert "gpt-" not in text


def test_items_of_other_datasets_are_not_found(client, owner):
    make_study(owner)
    other = factories.make_dataset("others", 1).items.get()
    client.force_login(owner)
    assert client.get(reverse("item_transcript", args=["sums", other.pk])).status_code == 404


def test_more_answers_and_conditions_add_no_query(client, owner, monkeypatch):
    monkeypatch.setattr(item_answers, "TRANSCRIPTS_PER_PAGE", 4)
    few = make_study(owner, models=["m1", "m2"])
    open_transcript(client, few)
    with CaptureQueriesContext(connection) as before:
        open_transcript(client, few)
    many = factories.make_experiment(
        "many", owner=owner, dataset=few.dataset, samples=5, scorers=["numeric"],
        models=[factories.make_model(f"n{number}") for number in range(6)],
    )  # fmt: skip
    for run in factories.make_runs(many, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(many, by="test")
    open_transcript(client, many)
    with CaptureQueriesContext(connection) as after:
        page = open_transcript(client, many)
    assert len(after) == len(before)
    assert [len(cell.answers) for cell in page.context["transcript"].cells] == [item_answers.MAX_TRANSCRIPT_ANSWERS] * 4
    assert "All 5 answers" in page_text(page)
    second = open_transcript(client, many, page=2)
    assert len(second.context["transcript"].cells) == 2


def test_an_answer_of_ten_megabytes_is_cut_in_the_database(client, owner, capsys):
    text = ("A long answer with some ordinary words in it. " * (TEN_MB // 46 + 1))[:TEN_MB]
    messages = [{"role": "user", "content": "Write a book."}, {"role": "assistant", "content": text}]
    fields = {"answer": text, "reasoning": text, "raw_response": text, "messages": messages}
    experiment = make_study(owner, scorers=[], answer=lambda item, *_: fields if item.key == "item-1" else "2")
    open_transcript(client, experiment, "item-2")
    started, began = time.perf_counter(), time.process_time()
    with CaptureQueriesContext(connection) as queries:
        page = open_transcript(client, experiment)
    seconds, processor = time.perf_counter() - started, time.process_time() - began
    with capsys.disabled():
        print(f"\ntranscript of two answers of 10 MB: {1000 * seconds:.0f} ms, {1000 * processor:.0f} ms of processor "
              f"time, {len(queries)} queries, {len(page.content):,} bytes")  # fmt: skip
    assert processor < 0.3, "time that the load of the machine does not change"
    assert len(page.content) < 100_000
    answers = [cell.answers[0].trial for cell in page.context["transcript"].cells]
    assert [(len(trial.answer), trial.answer_size) for trial in answers] == [(item_answers.MAX_CHARACTERS, TEN_MB)] * 2
    shown = page_text(page)
    assert shown.count("The first 4\u202f000 characters of 9.5\xa0MB.") == 4, "answer and reasoning of each"
    assert reverse("trial_text", args=[answers[0].pk, "answer"]) in shown
