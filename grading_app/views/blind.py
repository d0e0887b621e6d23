"""Blind reading: the switch between the names of models and letters, and its record."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from runs_app.models import Experiment
from runs_app.views.permissions import get_visible_experiment


def get_blind_context(request: HttpRequest, experiment: Experiment) -> dict[str, Any]:
    """Return the context of `grading_app/partials/blind_state.html`. `blind` is the reader's current blind reading."""
    readings = list(BlindReading.objects.filter(experiment=experiment).select_related("reader", "experiment"))
    own_reading = next((row for row in readings if row.reader_id == request.user.pk and row.revealed_at is None), None)
    return {"blind": own_reading, "blind_readings": readings}


@require_POST
@readers_only
@hides_model_names()
def blind_start(request: HttpRequest, slug: str) -> HttpResponse:
    """Hide the names of the models from this reader."""
    BlindReading.start(get_visible_experiment(request, slug), request.user)
    messages.success(request, "Model names are hidden from you on Results, Matrix, Analysis and Compare.")
    return _redirect_back(request, slug)


@require_POST
@readers_only
@hides_model_names()
def blind_reveal(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the names again, and record when. Those of a preregistered experiment stay hidden until its plan ran."""
    experiment = get_visible_experiment(request, slug)
    reading = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first()
    if reading is not None and reading.must_stay_hidden:
        messages.error(request, "The plan is preregistered: names stay hidden until its runs have ended.")
    elif reading is not None and reading.reveal():
        messages.success(request, "Model names are shown. The record on this page says when you revealed them.")
    return _redirect_back(request, slug)


def _redirect_back(request: HttpRequest, slug: str) -> HttpResponse:
    address = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(address, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return HttpResponseRedirect(address)
    return redirect("experiment_results", slug)
