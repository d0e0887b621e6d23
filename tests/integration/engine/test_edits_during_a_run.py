"""People edit endpoints, models and experiments while drains count in the same rows: neither undoes the other."""

import pytest
from django.forms import model_to_dict
from django.utils import timezone

from runs_app.engine.admission import admit
from runs_app.engine.stall_detection import note_call
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.forms.endpoints import EndpointForm, LanguageModelForm
from runs_app.management.field_updates import update_fields
from runs_app.models import Endpoint, Experiment, LanguageModel, Run
from runs_app.monitoring.consistency_check import find_differences


def by_form(form_of):
    """What was read when the page was opened is what the form holds when it is sent."""

    def edit(row, **changes):
        data = {name: value for name, value in model_to_dict(row, form_of.Meta.fields).items() if value is not None}
        data |= {"provider_routes": ""} if form_of is EndpointForm else {}
        form = form_of({**data, **changes}, instance=row)
        assert form.is_valid(), form.errors
        return form.save

    return edit


def by_command(row, **changes):
    return lambda: update_fields(row, changes, by="a test")


def by_admin(row, **changes):
    for name, value in changes.items():
        setattr(row, name, value)
    return row.save


@pytest.mark.parametrize("edit", [by_form(EndpointForm), by_command, by_admin])
def test_an_endpoint_keeps_what_drains_counted_between_its_reading_and_its_saving(run, edit):
    Endpoint.objects.update(requests_per_minute=600)
    save = edit(Endpoint.objects.get(), max_concurrency=5)
    assert len(admit(WorkerRegistration().worker_id, 4)) == 4
    Endpoint.objects.update(paused_until=timezone.now(), pause_reason="a 429", in_batches=0)
    counted = Endpoint.objects.values("in_flight", "throttle", "paused_until", "pause_reason").get()
    save()
    assert Endpoint.objects.values("in_flight", "throttle", "paused_until", "pause_reason").get() == counted
    assert counted["in_flight"] == 4
    assert counted["throttle"]
    assert Endpoint.objects.get().max_concurrency == 5
    assert find_differences() == []


@pytest.mark.parametrize("edit", [by_form(LanguageModelForm), by_command, by_admin])
def test_a_model_keeps_its_time_outs(run, edit):
    model = LanguageModel.objects.get()
    save = edit(model, max_output_tokens=50)
    note_call(model.pk, {"outcome": "transient", "error_class": "timeout"}, "test")
    save()
    saved = LanguageModel.objects.get()
    assert (saved.stalls, saved.max_output_tokens) == (1, 50)


def test_an_experiment_and_a_run_keep_their_state_their_money_and_their_counters(run):
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


def test_who_names_columns_writes_those_and_a_new_row_is_written_whole(run):
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
def test_a_save_that_would_leave_out_what_was_set_of_the_engines_is_refused_and_names_it(run, kind, change):
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


def test_what_was_changed_within_a_column_of_the_engines_is_refused_too(run):
    run.errors["timeout"] = 3
    with pytest.raises(ValueError, match="errors"):
        run.save()


def test_a_row_of_which_not_all_was_read_or_that_was_read_again_is_saved(run):
    part = Run.objects.only("max_concurrency").get()
    part.max_concurrency = 9
    part.save()
    assert part.n_done == 0  # Read only now.
    Run.objects.update(n_attempts=5, is_batched=True)
    part.refresh_from_db()
    part.save()
    assert Run.objects.values_list("max_concurrency", "n_attempts", "is_batched").get() == (9, 5, True)


def test_an_engines_column_that_was_never_read_and_is_set_is_refused(run):
    part = Run.objects.only("max_concurrency").get()
    part.n_done = 7
    with pytest.raises(ValueError, match="n_done"):
        part.save()
