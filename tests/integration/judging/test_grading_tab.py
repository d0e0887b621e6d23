"""The grading tab: graders with their results, a form to add a judge, and the judge's progress."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
import time_machine
from django.urls import reverse
from django.utils import timezone

from evalsite.lib.stats import wilson
from grading_app.grading.judging import panels
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition, Grading, Panel, Preference
from grading_app.models.gradings import allow_superseding
from grading_app.results.raters.grader_rows import list_grader_rows
from grading_app.results.raters.pairwise_stats import compute_standing
from grading_app.statistics.clusters import clustered_share
from runs_app.models import Run, Trial
from tests.factories import make_dataset, make_experiment, make_model, make_runs, make_team, plan_trials
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader, make_rubric
from tests.unit.clustered_scores import compute_sums


def build_tab_address(experiment):
    return reverse("experiment_grading", args=[experiment.slug])


def build_form_address(experiment):
    return reverse("experiment_judge", args=[experiment.slug])


@pytest.fixture
def web(client, answered):
    client.force_login(answered.owner)
    return client


def judge_with(experiment, grader, call):
    request_verdicts(experiment, [grader], list(experiment.waves.all()), by="test")
    drain(call)
    read_verdicts(experiment)


@pytest.mark.slow
def test_an_added_judges_scores_appear_on_the_tab(web, answered, wave):
    make_grader("strict")
    assert "No grades yet" in web.get(build_tab_address(answered)).content.decode()
    page = web.get(build_form_address(answered), {"grader": "strict"})
    assert (page.context["estimate"].to_do, page.context["estimate"].ceiling_usd > 0) == (12, True)
    assert Trial.objects.filter(subject__isnull=False).count() == 0

    response = web.post(build_form_address(answered), {"grader": "strict"}, follow=True)
    assert "12 verdicts are requested." in response.content.decode()
    assert 'hx-trigger="every 3s"' in response.content.decode()
    drain(build_judge(lambda request: 1.0 if "small" in request.model else 0.25))
    read_verdicts(answered)

    done = web.get(build_tab_address(answered))
    (line,) = (page["row"] for page in done.context["rows"])
    assert line.scores.n == 12
    assert {(one.score.items, one.score.mean) for one in line.scores.means} == {(3, 0.25)}
    assert line.spent == get_judge_run(answered).spent_usd > 0
    with time_machine.travel(timezone.now() + timedelta(seconds=61)):
        later = web.get(build_tab_address(answered)).content.decode()
    assert 'id="grading"' in later
    assert 'hx-trigger="every' not in later
    again = web.post(build_form_address(answered), {"grader": "strict"}, follow=True).content.decode()
    assert "Nothing was requested: every answer already has a verdict." in again


@pytest.mark.slow
def test_the_tab_refreshes_until_replies_of_the_last_call_are_read(web, answered):
    request_verdicts(answered, [make_grader()], list(answered.waves.all()), by="test")
    drain(build_judge(0.5))
    before = web.get(build_tab_address(answered))
    assert before.context["rows"][0]["row"].scores.means == ()
    assert 'hx-trigger="every' in before.content.decode()
    read_verdicts(answered)
    with time_machine.travel(timezone.now() + timedelta(seconds=30)):
        after = web.get(build_tab_address(answered))
    assert after.context["rows"][0]["row"].scores.n == 12


@pytest.mark.slow
def test_a_cost_above_the_threshold_is_confirmed_first(web, answered):
    make_grader("strict")
    type(answered).objects.filter(pk=answered.pk).update(confirm_above_usd=0)
    refused = web.post(build_form_address(answered), {"grader": "strict"})
    assert "confirmed" in refused.context["form"].errors
    assert not Run.objects.filter(condition__stage="judge").exists()
    web.post(build_form_address(answered), {"grader": "strict", "confirmed": "on"})
    assert get_judge_run(answered).n_pending == 12


def test_a_judge_that_cannot_start_shows_the_reason_and_makes_no_calls(web, answered):
    make_grader("strict", model=make_model("unpriced", input_price=None, output_price=None))
    assert "has no price" in web.get(build_form_address(answered), {"grader": "strict"}).content.decode()
    response = web.post(build_form_address(answered), {"grader": "strict"})
    assert "has no price" in response.content.decode()
    assert not Run.objects.filter(condition__stage="judge").exists()


@pytest.mark.slow
def test_failures_are_counted_by_code_with_a_link_to_their_answers(web, answered):
    judge_with(
        answered,
        make_grader(),
        build_judge(lambda request: "No idea." if "What is 1 plus" in str(request.messages) else 1),
    )
    (shown,) = web.get(build_tab_address(answered)).context["rows"]
    ((code, n, address),) = shown["codes"]
    assert (code, n) == ("no_json_object", 4)
    found = web.get(address)
    keys = {row.record.item.key for row in found.context["table"].rows}
    assert (len(found.context["table"].rows), keys) == (4, {"item-1"})


def test_the_mean_is_over_items_and_excludes_unread_verdicts(answered):
    scores = {"What is 0": 1, "What is 1": "nothing", "What is 2": 0}
    judge_with(
        answered,
        make_grader(),
        build_judge(lambda request: next(score for text, score in scores.items() if text in str(request.messages))),
    )
    (line,) = list_grader_rows(answered)
    assert (line.scores.n, line.scores.unread) == (8, 4)
    for one in line.scores.means:
        assert (one.score.items, one.score.mean) == (2, 0.5)
        assert 0 <= one.score.low < 0.5 < one.score.high <= 1


def test_a_judge_of_the_answering_models_family_is_flagged(web, answered):
    kin = make_model("kin", model="vendor/small-2")
    judge_with(answered, make_grader("cousin", model=kin), build_judge())
    assert "Self-preference." in web.get(build_tab_address(answered)).content.decode()


@pytest.mark.slow
def test_a_panel_with_a_member_of_the_answering_models_family_is_flagged(web, answered):
    cousin = make_grader("cousin", model=make_model("kin", model="vendor/small-2"))
    stranger = make_grader("stranger", rubric=cousin.rubric, model=make_model("far", model="other/far-1"))
    judge_with(answered, cousin, build_judge())
    judge_with(answered, stranger, build_judge())
    panel = Panel.objects.create(name="bench", rule="mean")
    panel.graders.set([cousin, stranger])
    panels.add_panel(answered, panel)
    kin = {
        line.condition.grade_condition_id.partition("--")[0]: line.related_models for line in list_grader_rows(answered)
    }
    assert kin == {
        "cousin_standard": ("large", "small"),
        "stranger_standard": (),
        "bench": ("large", "small"),
    }
    page = " ".join(web.get(build_tab_address(answered)).content.decode().split())
    assert "A member of the panel belongs to the same model family as large, small" in page


@pytest.mark.slow
def test_scores_that_follow_the_length_of_answers_are_flagged(client, transactional_db):
    team = make_team()
    experiment = make_experiment("long", owner=team.owner, dataset=make_dataset("many", 40), max_usd=None)
    (run,) = make_runs(experiment, status="done")
    plan_trials(run, answer=lambda item, *_: "word " * (item.position + 1))
    judge_with(
        experiment, make_grader("wordy"), build_judge(lambda request: min(1, str(request.messages).count("word ") / 50))
    )
    judge_with(experiment, make_grader("fair", rubric=make_rubric("fair", scale_max=2)), build_judge(1))
    wordy, fair = list_grader_rows(experiment)
    assert wordy.scores.length > 0.9
    assert (wordy.scores.length_n, wordy.scores.follows_length, fair.scores.follows_length) == (40, True, False)
    client.force_login(team.owner)
    page = client.get(build_tab_address(experiment)).content.decode()
    assert page.count("Scores correlate with answer length") == 1


def test_a_length_correlation_over_few_answers_is_not_flagged(answered):
    judge_with(answered, make_grader(), build_judge())
    for grading in Grading.objects.select_related("trial"):
        with allow_superseding():
            Grading.objects.filter(pk=grading.pk).update(score=len(grading.trial.answer) / 100 + grading.trial_id / 1e6)
    (line,) = list_grader_rows(answered)
    assert line.scores.length_n == 12
    assert not line.scores.follows_length


@pytest.mark.slow
def test_the_tab_lists_rules_judges_and_panels_together(web, answered):
    grade(answered, scorers=["exact_match"], by="test")
    low = make_grader("low")
    high = make_grader("high", rubric=low.rubric, model=make_model("second-judge"))
    judge_with(answered, low, build_judge(0.0))
    judge_with(answered, high, build_judge(1.0))
    panel = Panel.objects.create(name="bench", rule="mean")
    panel.graders.set([low, high])
    response = web.post(reverse("experiment_add_panel", args=[answered.slug]), {"panel": "bench"}, follow=True)
    lines = [shown["row"] for shown in response.context["rows"]]
    assert [line.condition.kind for line in lines] == ["rule", "judge", "judge", "panel"]
    assert {one.score.mean for one in lines[-1].scores.means} == {0.5}
    splits = response.context["rows"][-1]["disagreements"]
    members = {f"g{line.condition.pk}" for line in lines[1:3]}
    assert set(parse_qs(urlsplit(splits).query)["rater"]) == members
    assert web.get(splits).status_code == 200


def test_a_panel_whose_members_did_not_judge_here_is_refused(web, answered):
    panel = Panel.objects.create(name="bench")
    one = make_grader("one")
    panel.graders.set([one, make_grader("two", rubric=one.rubric, model=make_model("second-judge"))])
    response = web.post(reverse("experiment_add_panel", args=[answered.slug]), {"panel": "bench"}, follow=True)
    assert "did not judge pilot yet" in response.content.decode()
    assert not GradeCondition.objects.exists()


def test_a_judges_run_is_paused_and_resumed_from_the_tab(web, answered):
    request_verdicts(answered, [make_grader()], list(answered.waves.all()), by="test")
    run = get_judge_run(answered)
    back = web.post(reverse("run_action", args=[run.pk, "pause"]), {"next": build_tab_address(answered)})
    assert back.url == build_tab_address(answered)
    assert [action.verb for action in web.get(build_tab_address(answered)).context["rows"][0]["runs"][0][1]] == [
        "resume",
        "cancel",
    ]
    web.post(reverse("run_action", args=[run.pk, "resume"]), {"next": build_tab_address(answered)})
    run.refresh_from_db()
    assert run.status == "running"


def test_read_only_users_see_no_buttons(client, answered):
    type(answered).objects.filter(pk=answered.pk).update(sharing="group")
    judge_with(answered, make_grader(), build_judge())
    from django.contrib.auth import get_user_model

    client.force_login(get_user_model().objects.get(username="teammate"))
    page = client.get(build_tab_address(answered))
    assert (page.context["editable"], page.context["rows"][0]["repeat_url"]) == (False, "")
    assert "Add a judge" not in page.content.decode()
    assert client.get(build_form_address(answered)).status_code == 404


def test_the_number_of_queries_is_bounded(web, answered, django_assert_num_queries):
    judge_with(answered, make_grader(), build_judge())
    with django_assert_num_queries(30, exact=False):
        web.get(build_tab_address(answered))


@pytest.mark.slow
def test_answer_pages_show_their_verdicts_and_verdict_pages_their_answer(web, answered):
    judge_with(answered, make_grader(), build_judge(0.5))
    answer = Trial.objects.filter(subject=None).first()
    call = Trial.objects.get(subject=answer)
    page = web.get(answer.get_absolute_url()).content.decode()
    assert "It is so." in page
    assert f'href="{call.get_absolute_url()}"' in page
    verdict = web.get(call.get_absolute_url())
    assert f'href="{answer.get_absolute_url()}"' in verdict.content.decode()
    assert answer.answer in "".join(turn.text for turn in verdict.context["turns"].turns)
    assert [grading.score for grading in verdict.context["gradings"]] == [0.5]


def test_judge_replies_are_escaped(web, answered):
    judge_with(answered, make_grader(), build_judge({"score": 1, "reasoning": "<script>alert(1)</script>"}))
    answer = Trial.objects.filter(subject=None).first()
    assert "&lt;script&gt;alert(1)" in web.get(answer.get_absolute_url()).content.decode()


def test_position_bias_and_model_strengths_are_both_shown(web, answered):
    """Use a judge that prefers the first position in item 0 and the second model's answer elsewhere."""
    first, second = (run.pk for run in Run.objects.order_by("pk"))

    def winner(request):
        text = str(request.messages)
        if "What is 0" in text:
            return {"winner": "A", "reasoning": "the first"}
        return {"winner": "A" if text.index(f"by {second},") < text.index(f"by {first},") else "B", "reasoning": "."}

    judge_with(answered, make_grader("duel", rubric=make_rubric("better", kind="pairwise")), build_judge(winner))
    (line,) = list_grader_rows(answered)
    assert Preference.objects.count() == 12
    labels = {run.condition_id: f"model of {run.pk}" for run in answered.answer_runs}
    standing = compute_standing([line.condition], labels)
    bias = standing.bias
    assert (bias.pairs, bias.flipped, bias.for_first, bias.for_second) == (6, 2, 2, 0)
    # Only both pairs of item 0 changed. The certainty is that of three items, not of six pairs.
    by_items = clustered_share(compute_sums([[1, 1], [0, 0], [0, 0]]))
    assert (bias.flips.low, bias.flips.high) == pytest.approx((by_items.low, by_items.high))
    assert bias.flips.high - bias.flips.low > wilson(2, 6).high - wilson(2, 6).low
    assert (bias.decided, bias.firsts.clusters) == (12, 3)
    assert [one.label for one in standing.ranked] == [f"model of {second}", f"model of {first}"]
    assert standing.ranked[0].strength > 0 > standing.ranked[1].strength
    page = web.get(build_tab_address(answered)).content.decode()
    assert "2 of 6 pairs" in page
    assert f"{100 * by_items.low:.1f} to {100 * by_items.high:.1f} % over 3 items" in page
    assert "Bradley-Terry" in page


def test_a_panels_mean_follows_its_members(answered):
    one = make_grader("one")
    two = make_grader("two", rubric=one.rubric, model=make_model("second-judge"))
    judge_with(answered, one, build_judge(0.0))
    judge_with(answered, two, build_judge(1.0))
    panel = Panel.objects.create(name="bench", rule="mean")
    panel.graders.set([one, two])
    condition = panels.add_panel(answered, panel)
    found = next(line for line in list_grader_rows(answered) if line.condition == condition).scores
    assert {one.score.mean for one in found.means} == {0.5}
