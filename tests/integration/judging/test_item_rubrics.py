"""Item rubrics: a model writes one for each item, a curator corrects it, and every judge reads it."""

import pytest
from django.urls import reverse

from evalsite.lib import permissions
from evalsite.lib.history import TransitionError
from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.graders import choose_graders, save_graders
from grading_app.grading.judging.item_rubrics import RubricWriter
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading, Rubric
from grading_app.tasks import grade_experiment
from runs_app import deletion
from runs_app.llm.rubric_checks import STARTERS
from runs_app.models import Answer, Attempt, Experiment, Run, TextSet, Trial
from runs_app.planning.work import PlanError
from tests.factories import make_model, make_sampler, make_user
from tests.factories.engine import build_reply, drain
from tests.factories.judges import build_judge, make_grader, make_rubric

OWN = [{"role": "user", "content": "{{input}}\n{{item_rubric}}\n{{answer}}"}]


@pytest.fixture
def curator(db):
    return make_user("curator", permissions.CURATOR)


@pytest.fixture
def writer(answered):
    Experiment.objects.filter(pk=answered.pk).update(status="active")
    answered.refresh_from_db()
    starter = STARTERS["writer"]
    turns = [{"role": "system", "content": starter.system}, {"role": "user", "content": starter.user}]
    template = Rubric.objects.create(name="by-reference", kind="writer", messages=turns, status="approved")
    sampler = make_sampler("writing", temperature=0, max_tokens=300)
    return RubricWriter(answered, template, make_model("author"), sampler)


async def quote_reference(request):
    """Reply with a quote of the reference in the request."""
    text = str(request.messages[-1]["content"])
    target = text.rsplit("Reference answer:\n", 1)[1]
    return build_reply(f"Right if it says {target}.")


@pytest.fixture
def text_set(writer):
    """Return a draft set with generated and collected texts."""
    created = writer.request(name="own", by=writer.experiment.owner)
    drain(quote_reference)
    created.collect()
    created.refresh_from_db()
    return created


def list_texts(text_set):
    return dict(text_set.texts.order_by("item__key").values_list("item__key", "text"))


def test_a_model_writes_one_rubric_for_each_item_from_its_reference(writer, text_set):
    assert list_texts(text_set) == {f"item-{n}": f"Right if it says {2 * n}." for n in range(3)}
    assert (text_set.status, text_set.version, text_set.written_by.stage) == ("draft", 1, "rubric")
    trials = Trial.objects.filter(run__condition=text_set.written_by)
    assert {(trial.subject_id, trial.dimension_id) for trial in trials} == {(None, None)}
    assert set(text_set.texts.values_list("trial", flat=True)) == set(trials.values_list("pk", flat=True))
    assert find_differences() == []


@pytest.mark.slow
def test_repeating_a_writer_makes_no_call(writer, text_set):
    calls = Attempt.objects.count()
    repeated = writer.request(name="own", by=writer.experiment.owner)
    assert drain(quote_reference) == 0
    assert repeated.collect() == 3
    assert (repeated.version, Attempt.objects.count()) == (2, calls)


def test_writer_calls_are_not_answers(writer, text_set):
    assert Answer.objects.count() == 12
    assert set(writer.experiment.answer_runs.values_list("condition__stage", flat=True)) == {"generate"}


def test_texts_are_collected_when_the_queue_grades(writer):
    created = writer.request(name="own", by=writer.experiment.owner)
    drain(quote_reference)
    grade_experiment(writer.experiment.pk)
    assert len(list_texts(created)) == 3


def test_truncated_or_empty_texts_count_as_missing_and_block_approval(writer, curator):
    async def answer_blank(request):
        text = str(request.messages)
        if "1 plus" in text:
            return build_reply("")
        return build_reply("Half a", finish_reason="length" if "2 plus" in text else "stop")

    created = writer.request(name="own", by=writer.experiment.owner)
    drain(answer_blank)
    assert created.collect() == 1
    assert created.find_missing() == ["item-1", "item-2"]
    with pytest.raises(ValueError, match="no text for item-1, item-2"):
        created.approve(by=curator, reason="read")


def test_a_correction_creates_a_new_version_with_author_time_and_reason(text_set, curator):
    item = text_set.dataset.items.get(key="item-1")
    second = text_set.correct(item, "Right if it says two.\r\n", by=curator, reason="words count too")
    text_set.refresh_from_db()
    assert (second.version, second.status, text_set.status) == (2, "draft", "archived")
    assert list_texts(text_set)["item-1"] == "Right if it says 2."
    assert list_texts(second)["item-1"] == "Right if it says two."
    row = second.texts.get(item=item)
    assert (row.edited_by, row.edited_at is not None, row.trial_id) == (
        curator,
        True,
        text_set.texts.get(item=item).trial_id,
    )
    change = second.history.filter(aspect="text of item-1").get()
    assert (change.by, change.reason, change.from_value) == (curator, "words count too", "Right if it says 2.")
    assert second.content_hash != text_set.content_hash


def test_corrections_share_one_draft_until_it_is_approved(text_set, curator):
    items = {item.key: item for item in text_set.dataset.items.all()}
    second = text_set.correct(items["item-1"], "two", by=curator, reason="one")
    assert second.correct(items["item-2"], "four", by=curator, reason="two") == second
    second.approve(by=curator, reason="all read")
    third = second.correct(items["item-0"], "zero", by=curator, reason="three")
    second.refresh_from_db()
    assert (second.status, third.version, list_texts(second)["item-0"]) == ("approved", 3, "Right if it says 0.")
    assert list_texts(third) == {"item-0": "zero", "item-1": "two", "item-2": "four"}
    with pytest.raises(ValueError, match="own@3 is newer"):
        second.correct(items["item-0"], "nought", by=curator, reason="late")
    with pytest.raises(TransitionError):
        second.approve(by=curator, reason="again")


@pytest.mark.slow
def test_a_corrected_item_only_costs_its_own_verdicts(writer, text_set, curator):
    """Check that the unchanged items' requests are identical and answered by the response cache."""
    experiment, waves = writer.experiment, list(writer.experiment.waves.all())
    text_set.approve(by=curator, reason="read")
    rubric = make_rubric("own-rubric", messages=OWN)
    first = make_grader("first", rubric=rubric, text_set=text_set)
    request_verdicts(experiment, [first], waves, by="test")
    drain(build_judge(lambda request: 1.0 if "Right if it says" in str(request.messages) else 0.0))
    read_verdicts(experiment)
    assert set(Grading.objects.values_list("score", flat=True)) == {1.0}

    item = text_set.dataset.items.get(key="item-1")
    second = text_set.correct(item, "Needs the word two.", by=curator, reason="words")
    second.approve(by=curator, reason="read")
    request_verdicts(experiment, [make_grader("second", rubric=rubric, text_set=second)], waves, by="test")
    requests = []

    async def count_call(request):
        requests.append(str(request.messages))
        return await build_judge(0.5)(request)

    drain(count_call)
    read_verdicts(experiment)
    assert len(requests) == 4  # Two models, two samples.
    assert all("Needs the word two." in text for text in requests)
    run = Run.objects.order_by("-pk").first()
    outcomes = Attempt.objects.filter(run=run).values_list("outcome", flat=True)
    assert sorted(outcomes) == ["cached"] * 8 + ["ok"] * 4
    scores = Grading.objects.filter(condition__grader__name="second").values_list("trial__item__key", "score")
    assert set(scores) == {("item-0", 1.0), ("item-1", 0.5), ("item-2", 1.0)}
    assert find_differences() == []


@pytest.mark.parametrize("approved", [False, True])
def test_texts_outlive_the_experiment_whose_calls_wrote_them(writer, text_set, curator, approved):
    if approved:
        text_set.approve(by=curator, reason="read")
    texts = list_texts(text_set)
    writer.experiment.archive(by="test", reason="over")
    deletion.delete(writer.experiment, by="test", reason="over")
    assert list_texts(text_set) == texts != {}
    assert not text_set.texts.exclude(trial=None).exists()


def test_a_draft_text_set_cannot_be_used_for_judging(writer, text_set):
    grader = make_grader(rubric=make_rubric("own-rubric", messages=OWN), text_set=text_set)
    with pytest.raises(PlanError, match="a curator must approve them"):
        request_verdicts(writer.experiment, [grader], list(writer.experiment.waves.all()), by="test")


def test_a_judge_with_a_corrected_draft_is_told_the_version_that_replaces_it(writer, text_set, curator):
    grader = make_grader(rubric=make_rubric("own-rubric", messages=OWN), text_set=text_set)
    item = text_set.dataset.items.first()
    corrected = text_set.correct(item, "Says two.", by=curator, reason="clearer")
    grader.text_set.refresh_from_db()
    waves = list(writer.experiment.waves.all())
    remedy = r"item rubrics own@1 are archived; choose the newer version own@2 \(--texts own@2\)"
    with pytest.raises(PlanError, match=remedy + ", once a curator has approved it$"):
        request_verdicts(writer.experiment, [grader], waves, by="test")
    corrected.approve(by=curator, reason="read")
    with pytest.raises(PlanError, match=remedy + "$"):
        request_verdicts(writer.experiment, [grader], waves, by="test")
    (variant,) = choose_graders(writer.experiment, [grader.name], None, "own@2")
    (line,) = request_verdicts(writer.experiment, save_graders([variant], "test"), waves, by="test")
    assert line.added == 12


def test_an_archived_version_without_a_successor_is_not_offered_for_approval(writer, text_set, curator):
    grader = make_grader(rubric=make_rubric("own-rubric", messages=OWN), text_set=text_set)
    text_set.archive(by=curator, reason="wrong")
    grader.text_set.refresh_from_db()
    with pytest.raises(PlanError, match="an archived version cannot be used again, so choose another one"):
        request_verdicts(writer.experiment, [grader], list(writer.experiment.waves.all()), by="test")


def test_a_writer_without_a_price_is_refused_under_a_budget(writer):
    costly = RubricWriter(writer.experiment, writer.template, make_model("free?", input_price=None), writer.sampler)
    with pytest.raises(PlanError, match="no ceiling"):
        costly.request(name="own", by=None)
    assert not TextSet.objects.exists()


@pytest.mark.slow
def test_the_whole_workflow_on_the_pages(client, writer, curator):
    experiment = writer.experiment
    client.force_login(experiment.owner)
    asking = reverse("experiment_write", args=[experiment.slug])
    choice = {"name": "own", "template": writer.template.pk, "model": writer.model.pk, "sampler": writer.sampler.pk}
    form_page = client.get(asking, choice)
    assert (form_page.context["to_do"], form_page.context["ceiling"] > 0, form_page.context["problems"]) == (
        3,
        True,
        [],
    )
    page = client.post(asking, choice, follow=True)
    assert "0 of 3 rubrics are written" in page.content.decode()
    drain(quote_reference)
    address = reverse("text_set", args=["own", 1])
    client.post(reverse("text_set_act", args=["own", 1, "collect"]))
    assert "Right if it says 2." in client.get(address).content.decode()
    assert client.post(reverse("text_set_act", args=["own", 1, "approve"]), {"reason": "me"}).status_code == 404

    client.force_login(curator)
    item = experiment.dataset.items.get(key="item-1")
    editing = reverse("text_of_item", args=["own", 1, item.pk])
    assert client.post(editing, {"text": "<b>two</b>"}).context["form"].errors["reason"]
    response = client.post(editing, {"text": "<b>two</b>", "reason": "words"}, follow=True)
    assert response.context["texts"].version == 2
    assert "&lt;b&gt;two&lt;/b&gt;" in response.content.decode()
    only = client.get(reverse("text_set", args=["own", 2]), {"only": "corrected"})
    assert [item.key for item, _ in only.context["rows"]] == ["item-1"]
    approving = reverse("text_set_act", args=["own", 2, "approve"])
    answer = client.post(approving, {"reason": "all\0read"}, follow=True)
    assert "Null characters are not allowed." in answer.content.decode()
    approved = client.post(approving, {"reason": "all read"}, follow=True)
    assert TextSet.objects.get(version=2).status == "approved"
    assert f"{reverse('judge_new')}?text_set={approved.context['texts'].pk}" in approved.content.decode()


@pytest.mark.slow
def test_the_url_sorts_and_pages_the_list_of_sets(client, curator, text_set):
    for name in ("alpha", "zeta"):
        TextSet.objects.create(name=name, dataset=text_set.dataset, created_by=curator)
    client.force_login(curator)

    def list_names(query):
        table = client.get(reverse("text_sets"), query).context["table"]
        return [row.record.name for row in table.paginated_rows]

    assert list_names({}) == ["alpha", "own", "zeta"]
    assert list_names({"sort": "-name"}) == ["zeta", "own", "alpha"]
    assert list_names({"sort": "-n_texts", "per_page": 1}) == ["own"]
    assert list_names({"per_page": 2, "page": 2}) == ["zeta"]
    page = client.get(reverse("text_sets")).content.decode()
    assert f'href="{reverse("text_set", args=["own", 1])}"' in page
