"""Rubric previews on five answers: real calls under the experiment's budget, without gradings."""

import pytest
from django.urls import reverse

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.rubric_preview import RubricPreview, list_previewed_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import GradeCondition, Grading
from runs_app import run_control
from runs_app.models import Attempt, Experiment, ItemText, Run, TextSet, Trial
from runs_app.planning.work import PlanError
from tests.factories import make_dataset, make_experiment, make_model, make_runs, make_sampler, plan_trials
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_rubric


@pytest.fixture
def draft(answered):
    return make_rubric("fresh", status="draft")


@pytest.fixture
def preview(answered, draft):
    return RubricPreview(draft, answered, make_model("judge"), make_sampler("cold", temperature=0, max_tokens=100))


def test_a_draft_gets_real_verdicts_and_no_gradings(answered, draft, preview):
    run = preview.request(by=answered.owner)
    assert run.trials.count() == 3  # One answer for each of the three items.
    assert drain(build_judge(lambda request: 0.5 if "What is 1" in str(request.messages) else "Hm.")) == 3
    read_verdicts(answered)
    verdicts = list_previewed_verdicts(draft, Experiment.objects.all())
    assert sorted(
        (one.verdict.score, one.verdict.error, one.verdict.reasoning) for one in verdicts if one.verdict.score
    ) == [(0.5, "", "It is so.")]
    assert [one.verdict.error for one in verdicts if one.verdict.error] == ["no_json_object"] * 2
    assert not Grading.objects.exists()
    assert not GradeCondition.objects.exists()
    assert find_differences() == []


def test_calls_of_another_condition_with_a_similar_name_are_no_test_of_this_rubric(answered, draft, preview):
    """A study of another site may bring verdicts by a rubric with the same name."""
    run = preview.request(by=answered.owner)
    condition = run.condition
    name = f"try-{draft.name}-v{draft.version}--ffffffffffff"
    fields = {"stage": "judge", "model": condition.model, "sampler": condition.sampler, "content": condition.content}
    foreign = answered.conditions.create(condition_id=name, **fields)
    foreign_run = answered.runs.create(condition=foreign, wave=run.wave)
    Trial.objects.create(
        run=foreign_run, sample_idx=0, item_id=run.trials.first().item_id, subject=run.trials.first().subject
    )
    assert {row.trial.run for row in list_previewed_verdicts(draft, Experiment.objects.all())} == {run}


def test_preview_calls_are_charged_to_the_experiments_budget(answered, preview):
    answered.refresh_from_db()
    before = answered.spent_usd
    preview.request(by="test")
    drain(build_judge())
    answered.refresh_from_db()
    assert answered.spent_usd - before == sum(
        Attempt.objects.filter(run__condition__stage="judge").values_list("cost_usd", flat=True)
    )
    Experiment.objects.filter(pk=answered.pk).update(max_usd=answered.spent_usd)
    run = preview.request(by="test")
    drain(build_judge())
    run.refresh_from_db()
    assert (run.n_done, run.n_pending) == (3, 3)


def make_sparse_experiment(answered_items, blank=()):
    """Return an experiment over forty items with few answers, like a pilot."""
    experiment = make_experiment("sparse", dataset=make_dataset("forty", 40), models=[make_model("a"), make_model("b")])
    for run in make_runs(experiment, status="done"):
        keys = {f"item-{number}" for number in answered_items}
        plan_trials(
            run,
            answer=lambda item, *_, keys=keys: (
                ("right" if item.position not in blank else " \n") if item.key in keys else None
            ),
        )
    return experiment


@pytest.mark.parametrize(
    ("answers", "blank", "tried_items"),
    [
        ((37,), (), [37]),
        ((1, 26, 39), (), [1, 26, 39]),
        ((1, 26, 39), (26,), [1, 39]),
        ((3, 4, 5, 30, 31, 32, 33, 34, 35, 39), (), [3, 5, 31, 33, 35]),
        (range(40), (), [0, 8, 16, 24, 32]),
    ],
)
def test_a_preview_selects_up_to_five_evenly_spaced_answered_items(db, answers, blank, tried_items):
    experiment, sampler = make_sparse_experiment(answers, blank), make_sampler("cold")
    for kind in ("score", "pairwise"):
        rubric = make_rubric(f"fresh-{kind}", kind, status="draft")
        preview = RubricPreview(rubric, experiment, make_model("judge"), sampler)
        verdicts = preview.select_answers()
        assert [subject.item.position for subject, _ in verdicts] == tried_items, kind
        assert len({subject.run_id for subject, _ in verdicts}) == min(2, len(verdicts)), kind
        assert all((rival is not None) == (kind == "pairwise") for _, rival in verdicts), kind
        assert all(rival is None or rival.run_id != subject.run_id for subject, rival in verdicts), kind
        assert preview.select_answers() == verdicts, kind


def test_a_second_preview_samples_new_verdicts_on_the_same_answers(answered, draft, preview):
    run = preview.request(by="test")
    drain(build_judge(0.0))
    assert preview.request(by="test") == run
    assert drain(build_judge(1.0)) == 3
    subjects = [set(run.trials.filter(sample_idx=index).values_list("subject", flat=True)) for index in (0, 1)]
    assert subjects[0] == subjects[1]
    assert [one.verdict.score for one in list_previewed_verdicts(draft, Experiment.objects.all())] == [1.0] * 3 + [
        0.0
    ] * 3


def test_a_cancelled_preview_is_not_restarted(answered, preview):
    run = preview.request(by="test")
    run_control.cancel(Run.objects.filter(pk=run.pk), by="test")
    with pytest.raises(PlanError, match="was cancelled, which is final"):
        preview.request(by="test")
    assert set(run.trials.values_list("status", flat=True)) == {"cancelled"}
    assert find_differences() == []


@pytest.fixture
def web(client, answered):
    user = answered.owner
    user.is_staff = True
    user.save()
    client.force_login(user)
    return client


@pytest.mark.slow
def test_a_preview_shows_its_maximum_cost_and_needs_confirmation_above_the_threshold(web, answered, draft, preview):
    address = reverse("rubric_test", args=[draft.name, draft.version])
    choice = {"experiment": answered.pk, "model": preview.model.pk, "sampler": preview.sampler.pk}
    Experiment.objects.update(confirm_above_usd=0)
    looked = web.post(address, choice | {"look": "Show cost"})
    cost = looked.context["cost"]
    assert (cost.calls, 0 < cost.ceiling_usd < 1) == (3, True)
    assert "3 calls, maximum cost" in looked.content.decode()
    response = web.post(address, choice)
    assert "asks from $0" in str(response.context["form"].errors["confirmed"])
    assert not Run.objects.filter(condition__stage="judge").exists()
    web.post(address, choice | {"confirmed": "on"})
    run = Run.objects.get(condition__stage="judge")
    assert run.n_pending == 3
    assert cost.ceiling_usd <= 3 * run.reserve_usd


@pytest.mark.slow
def test_a_rubric_with_item_rubrics_is_previewed_with_an_approved_set(web, answered, preview):
    own = make_rubric("own", status="draft", messages=[{"role": "user", "content": "{{item_rubric}} {{answer}}"}])
    texts = TextSet.objects.create(name="own", dataset=answered.dataset)
    for item in answered.dataset.items.all():
        ItemText.objects.create(text_set=texts, item=item, text=f"Rule of {item.key}. " * 50)
    address = reverse("rubric_test", args=[own.name, own.version])
    choice = {"experiment": answered.pk, "model": preview.model.pk, "sampler": preview.sampler.pk, "texts": texts.pk}
    assert "texts" in web.post(address, choice).context["form"].errors  # The text set is a draft.
    texts.approve(by=answered.owner, reason="read")
    web.post(address, choice)
    requests = []
    drain(build_judge(lambda request: requests.append(str(request.messages)) or 1))
    assert [sum(f"Rule of item-{n}." in text for text in requests) for n in range(3)] == [1, 1, 1]
    run = Run.objects.get(condition__stage="judge")
    assert run.request_tokens > 200  # The longest text is counted.
    assert [one.verdict.score for one in list_previewed_verdicts(own, Experiment.objects.all())] == [1.0] * 3


def test_a_pairwise_rubric_is_previewed_on_pairs_of_different_models(answered, preview):
    pairs = RubricPreview(
        make_rubric("duel", kind="pairwise", status="draft"), answered, preview.model, preview.sampler
    )
    run = pairs.request(by="test")
    for trial in run.trials.select_related("subject__run", "rival__run"):
        assert trial.subject.item_id == trial.rival.item_id
        assert trial.subject.run != trial.rival.run


def test_an_impossible_preview_reports_the_reason_and_makes_no_calls(answered, preview, draft):
    unpriced = RubricPreview(draft, answered, make_model("unpriced", input_price=None), preview.sampler)
    with pytest.raises(PlanError, match="has no price"):
        unpriced.request(by="test")
    writer = make_rubric("author", kind="writer", status="draft", messages=[{"role": "user", "content": "{{input}}"}])
    for nothing in (writer, draft):
        assert (
            RubricPreview(nothing, make_experiment(f"bare-{nothing.name}"), preview.model, preview.sampler)
            .estimate_cost()
            .calls
            == 0
        )
    bare = RubricPreview(draft, make_experiment("bare", dataset=answered.dataset), preview.model, preview.sampler)
    with pytest.raises(PlanError, match="no answers to judge"):
        bare.request(by="test")
    assert not Run.objects.filter(condition__stage="judge").exists()


@pytest.mark.slow
def test_only_users_who_may_spend_can_preview_a_rubric(client, answered, draft, preview):
    address = reverse("rubric_test", args=[draft.name, draft.version])
    choice = {"experiment": answered.pk, "model": preview.model.pk, "sampler": preview.sampler.pk}
    for name, offered in (("teammate", False), ("owner", True)):
        user = type(answered.owner).objects.get(username=name)
        user.is_staff = True
        user.save()
        client.force_login(user)
        client.post(address, choice)
        assert Trial.objects.filter(subject__isnull=False).exists() == offered
    assert 'hx-trigger="every 2s"' in client.get(address).content.decode()
    drain(build_judge({"score": 1, "reasoning": "<i>fine</i>"}))
    page = client.get(address).content.decode()
    assert "&lt;i&gt;fine&lt;/i&gt;" in page
    assert 'hx-trigger="every' not in page
    assert "Rubric tests" in client.get(reverse("experiment_grading", args=[answered.slug])).content.decode()
