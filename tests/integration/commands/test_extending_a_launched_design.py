"""`experiment extend` adds to a launched design without changing existing trials and costs."""

import json
from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, Condition, Experiment, LanguageModel, Manifest, Prompt, Run, Trial
from tests.factories import make_model, make_user
from tests.factories.engine import build_provider, drain
from tests.integration.commands.conftest import launch_pilot, make_lab
from tests.shared_rows import shared_rows


@shared_rows
def second_model(launched_experiment_of_file):
    return make_second_model()


def make_second_model():
    return make_model("second", endpoint=LanguageModel.objects.get(name="sim").endpoint)


@pytest.mark.slow
def test_an_added_model_adds_only_its_own_trials(manage, launched_experiment, second_model, operator):
    before = list(Condition.objects.values_list("pk", "condition_id"))
    trials_before = set(Trial.objects.values_list("pk", flat=True))
    result = manage("experiment", "extend", "pilot", "--model", "second", "--reason", "Compare", "--user", "root")
    assert result.code == 0, result.err
    assert "1 new conditions, 2 new trials: at most $" in result.out
    assert "pilot is extended: 2 new trials, 4 in all, in 2 runs" in result.out
    assert list(Condition.objects.values_list("pk", "condition_id"))[:1] == before
    assert trials_before < set(Trial.objects.values_list("pk", flat=True))
    assert (Trial.objects.count(), Run.objects.filter(status="running").count()) == (4, 2)
    (change,) = launched_experiment.history.filter(aspect="language model")
    assert (change.to_value, change.by, change.reason) == ("second", operator, "Compare")


@pytest.mark.slow
def test_the_manifest_of_an_extension_has_the_extended_design_and_the_approved_cost(
    manage, launched_experiment, second_model
):
    manage("experiment", "extend", "pilot", "--model", "second")
    newest, first = Manifest.objects.all()
    assert [len(manifest.content["conditions"]) for manifest in (first, newest)] == [1, 2]
    assert newest.launch["estimate"]["to_do"] == 4


@pytest.mark.slow
def test_all_axes_and_samples_are_extended_at_once(manage, launched_experiment, second_model, tmp_path):
    for kind, name in (("prompts", "terse"), ("samplers", "warm")):
        path = tmp_path / f"{name}.yaml"
        inline = '{name: terse, user: "Short: {{input}}"}' if kind == "prompts" else "{name: warm, temperature: 1}"
        path.write_text(f"{kind}: [{inline}]\n")
        assert manage("experiment", "extend", "pilot", path).code == 0
    assert manage("experiment", "extend", "pilot", "--model", "second", "--samples", "2").code == 0
    assert Condition.objects.count() == 8
    assert Trial.objects.count() == 8 * 2 * 2
    assert Prompt.objects.get(name="terse").status == "approved"
    assert launched_experiment.history.get(aspect="samples").to_value == "2"


@pytest.mark.slow
def test_an_edited_file_adds_its_new_rows_and_removes_nothing(manage, launched_experiment, second_model, tmp_path):
    spec = json.loads(manage("experiment", "show", "pilot", "--json").out)
    edited = tmp_path / "edited.yaml"
    edited.write_text(json.dumps(spec | {"models": ["second"], "max_attempts": 5}))
    result = manage("experiment", "extend", "pilot", edited)
    assert result.code == 0, result.err
    assert "max_attempts in the file is ignored" in result.err
    assert sorted(launched_experiment.language_models.values_list("name", flat=True)) == ["second", "sim"]
    assert Trial.objects.count() == 4


def test_existing_rows_change_nothing(manage, launched_experiment, second_model):
    manage("experiment", "extend", "pilot", "--model", "second")
    result = manage("experiment", "extend", "pilot", "--model", "second")
    assert (result.code, result.out.strip()) == (0, "pilot already has all of this: nothing to add")
    assert (Manifest.objects.count(), Trial.objects.count()) == (2, 4)


def test_a_dry_run_shows_the_cost_and_leaves_nothing_behind(manage, launched_experiment, tmp_path):
    path = tmp_path / "more.yaml"
    path.write_text('prompts: [{name: terse, user: "Short: {{input}}"}]\n')
    result = manage("experiment", "extend", "pilot", path, "--dry-run")
    assert (result.code, Trial.objects.count(), Prompt.objects.count()) == (0, 2, 1)
    assert "added to pilot: prompt terse@1" in result.out
    assert "1 new conditions, 2 new trials" in result.out


def test_under_a_budget_a_model_without_a_price_is_refused(manage, launched_experiment, second_model):
    Experiment.objects.update(max_usd=5)
    LanguageModel.objects.filter(name="second").update(input_price=None)
    result = manage("experiment", "extend", "pilot", "--model", "second", "--yes")
    assert result.code == 2
    assert "unknown price: model second has no price, and the experiment has a budget" in result.err
    assert (launched_experiment.language_models.count(), Trial.objects.count(), Manifest.objects.count()) == (1, 2, 1)


@pytest.mark.slow
def test_an_extension_above_the_budget_exits_with_4_or_warns_with_yes(manage, launched_experiment, second_model):
    Experiment.objects.update(max_usd=Decimal("0.0001"))
    assert manage("experiment", "extend", "pilot", "--model", "second").code == 4
    assert launched_experiment.language_models.count() == 1
    result = manage("experiment", "extend", "pilot", "--model", "second", "--yes")
    assert result.code == 0
    assert "the maximum cost is above the budget" in result.err


@pytest.mark.slow
def test_an_extension_above_the_limit_needs_confirmation(manage, launched_experiment, second_model):
    Experiment.objects.update(confirm_above_usd=Decimal("0.000001"))
    assert manage("experiment", "extend", "pilot", "--model", "second").code == 3
    assert launched_experiment.language_models.count() == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "nobody"), "models[0]: there is no language model nobody"),
        (("--samples", "0"), "samples: the experiment has 1; this number can only grow"),
        (("--dimension", "valence"), "dimensions"),
    ],
)
def test_invalid_additions_are_refused_with_their_key(manage, launched_experiment, words, message):
    result = manage("experiment", "extend", "pilot", *words)
    assert result.code == 2
    assert message in result.err


def test_a_draft_is_edited_and_not_extended(manage, lab, design):
    manage("experiment", "create", design())
    result = manage("experiment", "extend", "pilot", "--samples", "3")
    assert (result.code, Trial.objects.count()) == (2, 0)
    assert "is a draft: edit it instead" in result.err


@pytest.mark.slow
def test_a_file_for_another_dataset_is_refused(manage, launched_experiment, tmp_path):
    path = tmp_path / "more.yaml"
    path.write_text("dataset: others@1\nsamples: 2\n")
    assert "dataset: pilot uses questions@1" in manage("experiment", "extend", "pilot", path).err


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_finished_experiment_is_extended_without_repeated_calls(manage, tmp_path):
    make_user("root", superuser=True)
    make_lab()
    launch_pilot(tmp_path)
    make_second_model()
    drain(build_provider("four", cost_usd=Decimal("0.01")))
    paid = dict(Attempt.objects.values_list("trial_id", "cost_usd"))
    spent = Experiment.objects.get().spent_usd
    assert manage("experiment", "extend", "pilot", "--model", "second", "--samples", "2", "--yes").code == 0
    assert Run.objects.filter(status="running").count() == 2
    drain(build_provider("five", cost_usd=Decimal("0.01")))
    costs_after = dict(Attempt.objects.values_list("trial_id", "cost_usd"))
    assert {trial: costs_after[trial] for trial in paid} == paid
    assert Attempt.objects.count() == Trial.objects.filter(status="done").count() == 8
    assert Experiment.objects.get().spent_usd == spent + 6 * Decimal("0.01")
    assert Trial.objects.filter(pk__in=paid, answer="four").count() == 2
    assert find_differences() == []


def test_creating_from_the_edited_file_says_how_to_extend(manage, launched_experiment, design):
    result = manage("experiment", "create", design())
    assert result.code == 2
    assert "`experiment extend pilot " in result.err
