"""Drift, a name with several contents, causes warnings everywhere and blocks nothing."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from runs_app import run_control
from runs_app.models import Attempt, Condition, Endpoint, Run, Trial
from runs_app.planning import plan as plan_module
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.manifests import (
    SAMPLED_ATTEMPTS,
    SAMPLED_POSITIONS,
    ServedModels,
    find_drift_warnings,
    find_served_warnings,
    sample_served_models,
)
from tests.factories.drafts import (
    get_or_make_user,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db


def test_a_changed_sampler_of_the_same_name_is_drift():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    assert find_drift_warnings(experiment) == []
    old, new = experiment.samplers.get(), make_draft_sampler("greedy", version=2, temperature=1)
    experiment.samplers.set([new])
    contents = f"{old.content_hash[:12]} (3 trials), {new.content_hash[:12]} (0 trials)"
    assert find_drift_warnings(experiment) == [f"sampler greedy has had 2 contents: {contents}"]
    plan_module.plan(experiment)
    assert "(3 trials), " in find_drift_warnings(experiment)[0]
    assert "(0 trials)" not in find_drift_warnings(experiment)[0]


def launch_with_changed_prompt():
    """Return an experiment launched with a prompt and then set to its next version, with both versions."""
    experiment = make_draft_experiment(models=[make_rehearsal_model("a"), make_rehearsal_model("b")])
    run_control.launch(experiment, by=get_or_make_user())
    new = make_question_prompt(version=2, messages=[{"role": "user", "content": "Say: {{input}}"}])
    experiment.prompts.set([new])
    return experiment, Condition.objects.first().prompt, new


def test_the_estimate_the_manifest_and_the_status_warn_of_a_changed_prompt():
    experiment, old, new = launch_with_changed_prompt()
    before = f"prompt plain has had 2 contents: {old.content_hash[:12]} (6 trials), {new.content_hash[:12]} (0 trials)"
    assert estimate(experiment).warnings == [before]
    run_control.launch(experiment, by=get_or_make_user())
    (warning,) = experiment.manifests.first().content["warnings"]
    assert warning == before.replace("(0 trials)", "(6 trials)")
    assert experiment.manifests.last().content["warnings"] == []
    out, err = StringIO(), StringIO()
    call_command("status", "pilot", "--json", stdout=out)
    assert json.loads(out.getvalue())["warnings"] == [warning]
    call_command("status", "pilot", stdout=out, stderr=err)
    assert warning in err.getvalue()


def test_a_prompt_edited_between_two_experiments_is_drift():
    first = make_draft_experiment("first")
    plan_module.plan(first)
    old, sampler = first.prompts.get(), first.samplers.get()
    unchanged = make_draft_experiment("same", prompts=[old], samplers=[sampler])
    assert find_drift_warnings(unchanged) == []
    plan_module.plan(unchanged)
    new = make_question_prompt(version=2, messages=[{"role": "user", "content": "Say: {{input}}"}])
    second = make_draft_experiment("second", prompts=[new], samplers=[sampler])
    warning = (
        f"prompt plain has other contents in other experiments: {old.content_hash[:12]} (6 trials in 2 experiments); "
        f"here it is {new.content_hash[:12]}"
    )
    assert find_drift_warnings(second) == [warning]
    assert estimate(second).warnings == [warning]
    assert "first" not in warning  # The other experiment may be private.


def test_a_prompt_edited_before_its_first_use_is_not_drift():
    make_draft_experiment("first", prompts=[make_question_prompt()])
    new = make_question_prompt(version=2, messages=[{"role": "user", "content": "Say: {{input}}"}])
    assert (
        find_drift_warnings(make_draft_experiment("second", prompts=[new], samplers=[make_draft_sampler("other")]))
        == []
    )


def test_the_design_page_shows_the_drift_warning(client):
    experiment, old, new = launch_with_changed_prompt()
    client.force_login(get_or_make_user("root", superuser=True))
    page = client.get(experiment.get_absolute_url()).content.decode()
    assert f"{old.content_hash[:12]} (6 trials), {new.content_hash[:12]} (0 trials)" in page


def test_conditions_with_equal_joined_names_and_different_contents_are_drift():
    prompts = [make_question_prompt("a", [{"role": "user", "content": text}]) for text in ("{{input}}?",)]
    prompts += [make_question_prompt("x_a", [{"role": "user", "content": "{{input}}!"}])]
    experiment = make_draft_experiment(models=[make_rehearsal_model("m"), make_rehearsal_model("m_x")], prompts=prompts)
    plan_module.plan(experiment)
    (warning,) = find_drift_warnings(experiment)
    assert warning.startswith("condition m_x_a_greedy has had 2 contents: ")
    assert warning.count("(3 trials)") == 2


def answer(run, served_models, outcome="ok"):
    """Create one attempt per trial. `served_models` lists a model, or a model and its provider, for each trial."""
    trials = Trial.objects.filter(run=run).order_by("pk")
    pairs = [served_by if isinstance(served_by, tuple) else (served_by, "") for served_by in served_models]
    Attempt.objects.bulk_create(
        Attempt(trial=trial, run=run, token="0" * 32, outcome=outcome, served_model=model, served_provider=provider,
                finished_at="2026-01-01T00:00Z")
        for trial, (model, provider) in zip(trials, pairs, strict=True)
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changed", [[0], [-1], range(2000, 2300)], ids=["first", "last", "for a while"])
def test_a_change_of_the_served_model_during_a_run_is_found(changed):
    n = 3 * SAMPLED_POSITIONS * SAMPLED_ATTEMPTS
    plan_module.plan(make_draft_experiment(dataset=make_questions(n)))
    run, served = Run.objects.get(), ["sim-1"] * n
    for place in changed:
        served[place] = "sim-2"
    served[1] = ""
    answer(run, served)
    assert sample_served_models(run).models == ("sim-1", "sim-2")


def test_served_models_are_read_only_from_attempts_of_the_run(django_assert_num_queries):
    plan_module.plan(make_draft_experiment(models=[make_rehearsal_model("a"), make_rehearsal_model("b")]))
    one, other = Run.objects.with_design().order_by("pk")
    answer(one, ["a-1"] * 3)
    answer(other, ["b-1"] * 3)
    with django_assert_num_queries(1):
        assert sample_served_models(one) == ServedModels(("a-1",))


def test_several_served_providers_cause_a_warning_unless_routes_name_them():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    run = Run.objects.with_design().get()
    answer(run, [("sim", "north"), ("sim", "south"), ("sim", "north")])
    assert sample_served_models(run).providers == ("north", "south")
    assert find_served_warnings(experiment) == [
        f"model {run.condition.model} was served by north (2 calls), south (1 calls)"
    ]
    Endpoint.objects.update(provider_routes=["north", "south"])
    assert sample_served_models(Run.objects.with_design().get()) == ServedModels(("sim",))
    assert find_served_warnings(experiment) == []


def test_a_provider_with_only_failed_attempts_is_not_a_served_provider():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    run = Run.objects.get()
    answer(run, [("", "north"), ("", "south"), ("", "east")], outcome="transient")
    assert sample_served_models(run) == ServedModels()
    assert find_served_warnings(experiment) == []
