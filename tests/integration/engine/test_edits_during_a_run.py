"""Edits of endpoints, models and experiments during a drain: neither side overwrites the columns of the other."""

import pytest
from django.forms import model_to_dict
from django.utils import timezone

from evalsite.lib.ops.commands import update_fields
from grading_app.grading.consistency_check import find_differences
from runs_app.engine.model_state import note_call
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Endpoint, Experiment, LanguageModel, Run
from runs_app.views.endpoints import EndpointForm, LanguageModelForm
from tests.factories.engine import admit


def make_form_edit(form_of):
    """Return an edit by form, which submits the values read when the page was opened."""

    def edit(row, **changes):
        data = {name: value for name, value in model_to_dict(row, form_of.Meta.fields).items() if value is not None}
        data |= {"provider_routes": ""} if form_of is EndpointForm else {}
        form = form_of({**data, **changes}, instance=row)
        assert form.is_valid(), form.errors
        return form.save

    return edit


def edit_by_command(row, **changes):
    return lambda: update_fields(row, changes, by="a test")


def edit_by_admin(row, **changes):
    for name, value in changes.items():
        setattr(row, name, value)
    return row.save


@pytest.mark.parametrize("edit", [make_form_edit(EndpointForm), edit_by_command, edit_by_admin])
def test_saving_an_endpoint_keeps_counters_that_drains_changed_meanwhile(run, edit):
    Endpoint.objects.update(requests_per_minute=600)
    save = edit(Endpoint.objects.get(), max_concurrency=5)
    assert len(admit(WorkerRegistration().worker_id, 4)) == 4
    Endpoint.objects.update(paused_until=timezone.now(), pause_reason="a 429", in_batches=0)
    counters = Endpoint.objects.values("in_flight", "throttle", "paused_until", "pause_reason").get()
    save()
    assert Endpoint.objects.values("in_flight", "throttle", "paused_until", "pause_reason").get() == counters
    assert counters["in_flight"] == 4
    assert counters["throttle"]
    assert Endpoint.objects.get().max_concurrency == 5
    assert find_differences() == []


@pytest.mark.parametrize("edit", [make_form_edit(LanguageModelForm), edit_by_command, edit_by_admin])
def test_saving_a_model_keeps_its_timeout_count(run, edit):
    model = LanguageModel.objects.get()
    save = edit(model, max_output_tokens=50)
    note_call(model.pk, {"outcome": "transient", "error_class": "timeout"}, "test")
    save()
    saved = LanguageModel.objects.get()
    assert (saved.stalls, saved.max_output_tokens) == (1, 50)


def test_saving_an_experiment_or_a_run_keeps_its_status_money_and_counters(run):
    experiment = Experiment.objects.get()
    Run.objects.update(reserve_usd=1)
    admit(WorkerRegistration().worker_id, 4)
    Experiment.objects.update(status="active")
    experiment.title, run.max_concurrency = "Another title", 7
    experiment.save()
    run.save()
    experiment.refresh_from_db()
    run.refresh_from_db()
    assert (experiment.title, experiment.status, experiment.reserved_usd) == ("Another title", "active", 4)
    assert (run.max_concurrency, run.status, run.n_running) == (7, "running", 4)
    assert find_differences() == []


def test_update_fields_writes_the_named_columns_and_a_new_row_writes_all_columns(run):
    endpoint = Endpoint.objects.get()
    endpoint.in_batches, endpoint.name = 3, "unsaved"
    endpoint.save(update_fields=["in_batches"])
    assert list(Endpoint.objects.values_list("name", "in_batches")) == [("lab", 3)]
    assert Endpoint.objects.create(name="other", in_flight=2).in_flight == 2
    assert Endpoint.objects.get(name="other").in_flight == 2


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Run, {"stop_reason": "by hand"}),
        (Experiment, {"status": "archived"}),
        (Endpoint, {"in_flight": 1}),
        (LanguageModel, {"stalls": 2}),
    ],
)
def test_a_save_without_update_fields_is_refused_if_an_engine_column_was_set(run, kind, change):
    before = kind.objects.values().get()
    row = kind.objects.get()
    for name, value in change.items():
        setattr(row, name, value)
    with pytest.raises(ValueError, match=f"{next(iter(change))}, which the engine owns: name it in update_fields"):
        row.save()
    assert kind.objects.values().get() == before
    row.save(update_fields=list(change))
    row.save()
    assert kind.objects.values().get() == {**before, **change}


def test_a_save_is_refused_if_an_engine_column_was_changed_in_place(run):
    run.errors["timeout"] = 3
    with pytest.raises(ValueError, match="errors"):
        run.save()


def test_a_partly_loaded_or_refreshed_row_can_be_saved(run):
    part = Run.objects.only("max_concurrency").get()
    part.max_concurrency = 9
    part.save()
    assert part.n_done == 0  # A deferred column, loaded here.
    Run.objects.update(n_attempts=5, is_batched=True)
    part.refresh_from_db()
    part.save()
    assert Run.objects.values_list("max_concurrency", "n_attempts", "is_batched").get() == (9, 5, True)


def test_a_save_is_refused_if_a_deferred_engine_column_was_set(run):
    part = Run.objects.only("max_concurrency").get()
    part.n_done = 7
    with pytest.raises(ValueError, match="n_done"):
        part.save()
