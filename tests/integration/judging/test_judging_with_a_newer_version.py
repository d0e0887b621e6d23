"""Judging with a newer rubric or text version, from the tab or by command; earlier verdicts stay."""

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grader, Grading
from runs_app.models import Attempt, Experiment, ItemText, Run, TextSet
from tests.factories import NOON, make_user
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_grader, make_rubric
from tests.page_text import page_text

OWN = [{"role": "user", "content": "{{input}}\n{{item_rubric}}\n{{answer}}"}]


@pytest.fixture
def curator(db):
    return make_user("curator", permissions.CURATOR)


@pytest.fixture
def text_set(answered, curator):
    created = TextSet.objects.create(name="own", dataset=answered.dataset)
    for item in answered.dataset.items.all():
        ItemText.objects.create(text_set=created, item=item, text=f"Right if it says {item.target}.")
    created.approve(by=curator, reason="read")
    return created


def judge_with(experiment, grader):
    request_verdicts(experiment, [grader], list(experiment.waves.all()), by="test")
    drain(build_judge(1.0))
    read_verdicts(experiment)


def correct_text(text_set, curator, key="item-1"):
    item = text_set.dataset.items.get(key=key)
    second = text_set.correct(item, "Needs the word.", by=curator, reason="words")
    second.approve(by=curator, reason="read")
    return second


def list_offers(client, experiment):
    rows = client.get(reverse("experiment_grading", args=[experiment.slug])).context["rows"]
    return {line["row"].condition.grader.name: line["upgrade"] for line in rows}


@pytest.mark.slow
def test_judging_with_corrected_texts_calls_only_for_changed_items(client, answered, text_set, curator):
    Experiment.objects.filter(pk=answered.pk).update(confirm_above_usd=0)
    judge_with(answered, make_grader(rubric=make_rubric("own-rubric", messages=OWN), text_set=text_set))
    client.force_login(answered.owner)
    assert list_offers(client, answered) == {"judge-a": None}
    second = correct_text(text_set, curator)
    newer = list_offers(client, answered)["judge-a"]
    assert newer.label == "own@2"

    page = client.get(newer.address)
    assert page.context["estimate"].to_do == 12
    assert "confirmed" in page.context["form"].fields
    assert Grader.objects.count() == 1  # Viewing creates nothing.
    choice = {"grader": "judge-a", "texts": second.pk}
    asking = reverse("experiment_judge", args=["pilot"])
    assert "confirmed" in client.post(asking, choice).context["form"].errors
    client.post(asking, choice | {"confirmed": "on"})
    drain(build_judge(0.5))
    read_verdicts(answered)

    created, old = Grader.objects.get(text_set=second), Grader.objects.get(text_set=text_set)
    assert (created.name, created.created_by) == ("judge-a-own-v2", answered.owner)
    assert (created.language_model, created.sampler, created.rubric) == (old.language_model, old.sampler, old.rubric)
    outcomes = Attempt.objects.filter(run=Run.objects.order_by("-pk").first()).values_list("outcome", flat=True)
    assert sorted(outcomes) == ["cached"] * 8 + ["ok"] * 4
    assert set(Grading.objects.filter(condition__grader=old).values_list("score", flat=True)) == {1.0}
    assert Grading.objects.filter(condition__grader=created, score=0.5).count() == 4
    assert list_offers(client, answered) == {"judge-a": None, "judge-a-own-v2": None}


@pytest.mark.slow
def test_a_newer_rubric_is_offered_after_approval_even_if_the_older_is_archived(client, answered):
    grader = make_grader()
    judge_with(answered, grader)
    client.force_login(answered.owner)
    second = make_rubric(version=2, scale_max=5, status="draft")
    assert list_offers(client, answered) == {"judge-a": None}
    type(second).objects.filter(pk=second.pk).update(status="approved", approved_at=NOON)
    type(second).objects.filter(pk=grader.rubric.pk).update(status="archived")
    newer = list_offers(client, answered)["judge-a"]
    assert newer.parts == (second,)
    assert "Judge with standard@2" in page_text(client.get(reverse("experiment_grading", args=["pilot"])))
    assert client.get(newer.address).context["estimate"].problems == []
    client.post(reverse("experiment_judge", args=["pilot"]), {"grader": "judge-a", "rubric": second.pk})
    assert Grader.objects.get(rubric=second).name == "judge-a-standard-v2"
    assert Run.objects.filter(condition__grade_condition__rubric=second).get().n_pending == 12


@pytest.mark.slow
def test_the_command_replaces_the_version_suffix_in_the_judges_name(answered, text_set, curator):
    make_grader(rubric=make_rubric("own-rubric", messages=OWN), text_set=text_set)
    second = correct_text(text_set, curator)
    call_command("grade", "pilot", "--grader", "judge-a", "--texts", "own@2", "--no-wait")
    correct_text(second, curator, "item-2")
    call_command("grade", "pilot", "--grader", "judge-a-own-v2", "--texts", "own", "--no-wait")
    assert list(Grader.objects.order_by("pk").values_list("name", "text_set__version")) == [
        ("judge-a", 1),
        ("judge-a-own-v2", 2),
        ("judge-a-own-v3", 3),
    ]
    with pytest.raises(CommandError, match="there are no item rubrics own@9"):
        call_command("grade", "pilot", "--grader", "judge-a", "--texts", "own@9")
    with pytest.raises(CommandError, match="also name the grader"):
        call_command("grade", "pilot", "--texts", "own")


def test_a_refused_command_creates_no_judge(answered):
    make_grader()
    make_rubric(version=2, status="draft")
    with pytest.raises(CommandError, match="a curator must approve it"):
        call_command("grade", "pilot", "--grader", "judge-a", "--rubric", "standard@2")
    assert Grader.objects.count() == 1
