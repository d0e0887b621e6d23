import pytest

from evalsite.lib.history import StatusChange
from runs_app.models import Condition, Run, Trial
from runs_app.models.designs import Sampler
from runs_app.planning import plan as plan_module
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db


def list_identities(**filters):
    return list(
        Trial.objects.filter(**filters).order_by("pk").values_list("sample_idx", "item__key", "dimension__name")
    )


def test_a_plan_creates_one_trial_per_cell_item_dimension_and_repetition():
    experiment = make_draft_experiment(
        dataset=make_questions(3),
        models=[make_rehearsal_model("a"), make_rehearsal_model("b")],
        prompts=[make_question_prompt()],
        samplers=[make_draft_sampler(), make_draft_sampler("warm", temperature=1)],
        dimensions=[make_draft_dimension("valence"), make_draft_dimension("arousal")],
        samples=2,
    )
    report = plan_module.plan(experiment)
    assert (report.conditions, report.runs, report.trials_added, report.trials_total) == (4, 4, 48, 48)
    assert Trial.objects.count() == 48
    assert {run.n_pending for run in Run.objects.all()} == {12}


def test_trials_are_created_in_the_order_of_their_claims():
    valence, arousal = make_draft_dimension("valence"), make_draft_dimension("arousal")
    plan_module.plan(make_draft_experiment(dataset=make_questions(2), dimensions=[arousal, valence], samples=2))
    assert list_identities() == [
        (sample, item, dimension)
        for sample in (0, 1)
        for item in ("q000000", "q000001")
        for dimension in ("valence", "arousal")
    ]


def test_a_trial_without_dimensions_has_no_dimension():
    plan_module.plan(make_draft_experiment(dataset=make_questions(2)))
    assert list_identities() == [(0, "q000000", None), (0, "q000001", None)]


def test_excluded_items_get_no_trials():
    plan_module.plan(make_draft_experiment(dataset=make_questions(3, excluded={1})))
    assert [key for _, key, _ in list_identities()] == ["q000000", "q000002"]


def test_planning_again_changes_nothing():
    experiment = make_draft_experiment(dimensions=[make_draft_dimension()], samples=2)
    first_report = plan_module.plan(experiment)
    before = list_identities()
    second_report = plan_module.plan(experiment)
    assert (second_report.trials_added, second_report.trials_total) == (0, first_report.trials_total)
    assert second_report.run_ids == first_report.run_ids
    assert list_identities() == before
    assert Run.objects.get().n_pending == len(before)


@pytest.mark.parametrize("dimensions", [0, 2])
def test_more_samples_add_only_the_new_repetitions(dimensions):
    chosen = [make_draft_dimension(f"d{number}") for number in range(dimensions)]
    experiment = make_draft_experiment(dataset=make_questions(2), dimensions=chosen, samples=1)
    plan_module.plan(experiment)
    before = set(Trial.objects.values_list("pk", flat=True))
    experiment.samples = 3
    experiment.save()
    report = plan_module.plan(experiment)
    assert report.trials_added == 2 * 2 * max(1, dimensions)
    assert set(Trial.objects.exclude(pk__in=before).values_list("sample_idx", flat=True)) == {1, 2}
    assert Run.objects.get().n_pending == report.trials_total == Trial.objects.count()


def test_another_model_adds_a_run_and_does_not_change_the_others():
    experiment = make_draft_experiment(models=[make_rehearsal_model("a")])
    first_report = plan_module.plan(experiment)
    experiment.language_models.add(make_rehearsal_model("b"))
    second_report = plan_module.plan(experiment)
    assert set(first_report.run_ids) < set(second_report.run_ids)
    assert (second_report.trials_added, second_report.runs) == (3, 2)


def test_a_done_run_with_new_trials_becomes_planned_with_a_reason():
    experiment = make_draft_experiment()
    run_id = plan_module.plan(experiment).run_ids[0]
    Run.objects.filter(pk=run_id).update(status="done")
    experiment.samples = 2
    experiment.save()
    plan_module.plan(experiment, by="the test")
    run = Run.objects.get()
    change = StatusChange.objects.for_row(run).get()
    assert run.status == "planned"
    assert (change.from_value, change.to_value, change.actor) == ("done", "planned", "the test")
    assert "3 trials" in change.reason


def test_a_done_run_without_new_trials_stays_done():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    Run.objects.update(status="done")
    plan_module.plan(experiment)
    assert Run.objects.get().status == "done"


def test_a_plan_approves_its_samplers_and_dimensions():
    sampler, dimension = make_draft_sampler(), make_draft_dimension()
    experiment = make_draft_experiment(samplers=[sampler], dimensions=[dimension])
    plan_module.plan(experiment, by="the test")
    for row in (sampler, dimension):
        row.refresh_from_db()
        change = StatusChange.objects.for_row(row).get()
        assert (row.status, change.actor, change.reason) == ("approved", "the test", "Used by an experiment")


def test_a_renamed_model_keeps_its_condition():
    model = make_rehearsal_model("old-name")
    experiment = make_draft_experiment(models=[model])
    plan_module.plan(experiment)
    model.name = "new-name"
    model.save()
    assert plan_module.plan(experiment).trials_added == 0
    assert Condition.objects.get().condition_id.startswith("old-name_plain_greedy--")


def test_the_condition_is_a_snapshot_of_the_content():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    condition, prompt = Condition.objects.get(), experiment.prompts.get()
    assert condition.content == {
        "model": {"provider": "openai", "model": "sim-large"},
        "prompt": {"messages": prompt.messages, "answer_format": "text"},
        "sampler": {"temperature": 0, "max_tokens": 100},
    }


def test_a_new_version_of_a_sampler_creates_a_new_condition():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    experiment.samplers.set([Sampler.objects.create(name="greedy", version=2, temperature=0.5, max_tokens=100)])
    assert plan_module.plan(experiment).trials_added == 3
    assert Condition.objects.count() == 2
