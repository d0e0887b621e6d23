import json
from collections import Counter

import pytest

from grading_app.grading.scoring import grade
from grading_app.models import Grading
from runs_app.models import Attempt, Run, Trial
from runs_app.planning import plan as plan_module
from tests import factories
from tests.factories.drafts import make_draft_experiment, make_questions

pytestmark = pytest.mark.django_db


@pytest.fixture
def observed_run():
    """Return five trials: a normal answer, one of each unusable kind, and a failure."""
    experiment = make_draft_experiment(dataset=make_questions(5))
    plan_module.plan(experiment)
    run = Run.objects.get()
    odd = [{"answer": "42"}, {"answer": ""}, {"answer": "4", "truncated": True}, {"answer": "?", "parse_error": "none"}]
    for trial, fields in zip(Trial.objects.order_by("pk"), odd, strict=False):
        Trial.objects.filter(pk=trial.pk).update(status="done", **fields)
    Trial.objects.filter(status="pending").update(status="failed", error_class="timeout")
    Run.objects.update(n_pending=0, n_done=4, n_failed=1, n_attempts=5, n_unpriced=1, errors={"timeout": 1})
    return experiment, run


def read_status(manage, *words):
    return json.loads(manage("status", *words, "--json").out)


def test_unusable_answers_are_counted_by_kind(manage, observed_run):
    (run,) = read_status(manage, "pilot")["runs"]
    counts = {name: run[name] for name in ("done", "failed", "empty", "truncated", "unparsed", "refused", "unpriced")}
    assert counts == {
        "done": 4, "failed": 1, "empty": 1, "truncated": 1, "unparsed": 1, "refused": 0, "unpriced": 1,
    }  # fmt: skip
    assert run["errors"] == {"timeout": 1}


def test_text_output_has_the_same_numbers(manage, observed_run):
    output = manage("status", "pilot").out
    assert "4 of 5 trials done" in output
    assert "4 done, 1 failed, 1 empty, 1 truncated, 1 unparsed" in output
    assert "1 attempts of unknown cost" in output


def test_answers_that_a_scorer_could_not_read_are_counted_by_code(manage, observed_run):
    experiment, _ = observed_run
    experiment.scorers = ["exact_match", "numeric"]
    experiment.save()
    grade(experiment, by="test")
    rules = {rule["scorer"]: rule for rule in read_status(manage, "pilot")["rules"]}
    for name in experiment.scorers:
        by_hand = Counter(Grading.objects.filter(condition__scorer=name).values_list("parse_error", flat=True))
        assert rules[name]["scored"] == by_hand.pop("", 0)
        assert rules[name]["unread"] == by_hand
    name, unread = experiment.scorers[1], sum(rules[experiment.scorers[1]]["unread"].values())
    assert unread
    assert f"scorer {name}: {rules[name]['scored']} answers scored, {unread} answers could not be read (" in (
        manage("status", "pilot").out
    )


def test_waves_are_shown_separately_if_there_are_two(manage, observed_run):
    experiment, run = observed_run
    assert "first wave" not in manage("status", "pilot").out
    plan_module.plan(experiment, wave_label="march")
    Run.objects.filter(pk=run.pk).update(spent_usd="0.25", status="done")
    output = manage("status", "pilot").out
    assert "  first wave: 4 of 5 done, 1 failed, $0.25 spent\n" in output
    assert "  march: 0 of 5 done, 5 pending, $0.00 spent\n" in output
    first, second = read_status(manage, "pilot")["waves"]
    assert (first["label"], first["status"], first["done"], first["failed"]) == ("", "done", 4, 1)
    assert (second["label"], second["status"], second["pending"], second["first_epoch"]) == ("march", "planned", 5, 2)


def test_a_different_served_model_is_a_warning(manage, observed_run):
    for trial, served in zip(Trial.objects.all(), ["sim-1", "sim-2"], strict=False):
        Attempt.objects.create(
            trial=trial, run_id=trial.run_id, token="0" * 32, outcome="ok", served_model=served,
            finished_at="2026-01-01T00:00Z",
        )  # fmt: skip
    assert read_status(manage, "pilot")["warnings"] == [
        "model sim-large was served as sim-1 (1 calls), sim-2 (1 calls)"
    ]


def test_without_a_name_all_experiments_are_listed(manage, observed_run):
    assert [entry["experiment"] for entry in read_status(manage)] == ["pilot"]
    assert "pilot" in manage("status").out


def test_an_unknown_experiment_ends_with_2(manage):
    assert manage("status", "nothing").code == 2


def test_each_measure_has_its_interval_under_each_condition(manage):
    items = [{"key": f"item-{n}", "target": str(n), "norms": {}} for n in range(20)]
    experiment = factories.make_experiment(
        "quiz",
        dataset=factories.make_dataset("numbers", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence")],
        scorers=["numeric"],
        samples=1,
    )
    for run in factories.make_runs(experiment, status="done"):
        right = 12 if run.condition.model.name == "a" else 20
        factories.plan_trials(
            run,
            answer=lambda item, *_, right=right: {
                "answer": item.target if item.position < right else "-1",
                "rating": 1 + item.position % 7,
            },
        )
    grade(experiment, by="test")
    scores = {(entry["measure"], entry["condition"]): entry for entry in read_status(manage, "quiz")["scores"]}
    assert set(scores) == {(key, name) for key in ("valence", "numeric:valence") for name in "ab"}
    share = scores["numeric:valence", "a"]
    assert (share["mean"], share["n"], share["items"], share["is_share"]) == (0.6, 20, 20, True)
    # E. B. Wilson's interval of 12 of 20: R. G. Newcombe (1998), Statistics in Medicine 17, 857-872, method 3.
    assert (share["low"], share["high"]) == pytest.approx((0.3866, 0.7812), abs=0.02)
    assert scores["numeric:valence", "b"]["high"] == 1
    assert scores["numeric:valence", "b"]["low"] < 1
    output = manage("status", "quiz").out
    assert "Number within tolerance · Valence, 95 % intervals by item:" in output
    assert f"a: {share['text']}, n 20 of 20 items" in output


def test_the_projected_cost_is_that_of_the_progress_page(manage, observed_run):
    Run.objects.update(n_pending=10, spent_usd="0.50000000", n_unpriced=0, status="running")
    projection = read_status(manage, "pilot")["projection"]
    assert projection == {
        "total_usd": "1.50000000", "remaining": 10, "usd_each": "0.10000000", "is_over_budget": False,
    }  # fmt: skip
    assert "projected cost $1.50: spent so far, plus 10 trials at $0.10" in manage("status", "pilot").out


def test_a_cost_is_unknown_in_the_status_if_it_is_unknown_in_the_list(manage, observed_run):
    """All attempts of the run have an unknown cost."""
    Run.objects.update(n_unpriced=5)
    report = read_status(manage, "pilot")
    assert (report["spent_usd"], report["runs"][0]["spent_usd"], report["waves"][0]["spent_usd"]) == (None, None, None)
    (listed,) = json.loads(manage("experiment", "list", "--json").out)
    assert listed["spent_usd"] is None
    assert "unknown spent" in manage("status", "pilot").out
