"""The pages of endpoints, their models, prices and test calls."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app.models.history import save_with_history
from evalsite.lib.permissions import is_operator, members_only, operators_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.choice_fields import fetch_choices
from evalsite.lib.web.form_errors import get_first_error
from evalsite.lib.web.htmx import wants_part
from runs_app import price_list
from runs_app.cache_purge import list_purges, measure_cache, purge
from runs_app.forms.endpoints import EndpointForm, LanguageModelForm, NotedForm
from runs_app.forms.run_control import SteeringForm
from runs_app.models import Endpoint, LanguageModel
from runs_app.models.preflights import prefetch_last_preflights
from runs_app.monitoring.endpoint_load import load_endpoints
from runs_app.taskqueue.enqueue import enqueue_preflights
from runs_app.views.permissions import get_posted_data

COUNTED_TO = 100_000
PURGES = 20
CHANGES = 100  # The latest changes of one row.
PREFLIGHTS = 20
READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_safe
@members_only
def endpoint_list(request: HttpRequest) -> HttpResponse:
    models = prefetch_last_preflights(LanguageModel.objects.select_related("endpoint").order_by("name"))
    endpoints = list(Endpoint.objects.visible_to(request.user).prefetch_related(Prefetch("models", models)))
    context = {
        "rows": load_endpoints(endpoints),
        "may_edit": is_operator(request.user),
        "cache": measure_cache(COUNTED_TO),
        "purges": list(list_purges()[:PURGES]),
        "counted_to": COUNTED_TO,
    }
    return render(request, "runs_app/endpoint_list.html", context)


@require_safe
@members_only
def endpoint_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the current load of the endpoint, for a page that stays open."""
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    return render(request, "runs_app/partials/endpoint_live.html", {"row": load_endpoints([endpoint])[0]})


@require_http_methods(READ_OR_WRITE)
@operators_only
def endpoint_new(request: HttpRequest) -> HttpResponse:
    return _edit(request, EndpointForm(get_posted_data(request)[0]), "New endpoint")


@require_http_methods(READ_OR_WRITE)
@operators_only
def endpoint_edit(request: HttpRequest, pk: int) -> HttpResponse:
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    return _edit(request, EndpointForm(get_posted_data(request)[0], instance=endpoint), f"Edit {endpoint}")


@require_http_methods(READ_OR_WRITE)
@operators_only
def model_new(request: HttpRequest) -> HttpResponse:
    chosen = {"endpoint": request.GET.get("endpoint")}
    return _edit(request, LanguageModelForm(get_posted_data(request)[0], initial=chosen), "New model")


@require_http_methods(READ_OR_WRITE)
@operators_only
def model_edit(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    form = LanguageModelForm(get_posted_data(request)[0], instance=model)
    return _edit(
        request, form, f"Edit {model}", preflights=list(model.preflights.select_related("model__endpoint")[:PREFLIGHTS])
    )


@require_POST
@operators_only
def endpoint_prices(request: HttpRequest, pk: int) -> HttpResponse:
    """Take over litellm's list prices for the models of this endpoint, and show a message per model."""
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    found = price_list.find_repricings(endpoint.models.select_related("endpoint"))
    n = price_list.apply_repricings(found, by=request.user)
    messages.success(request, f"{n} of {len(found)} models priced by {price_list.source_name()}.")
    for one in found:
        (messages.warning if one.why_not else messages.info)(request, one.summary)
    return redirect("endpoint_list")


@require_POST
@members_only
def model_check(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask a worker for one tiny call. The model's row shows the answer."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    enqueue_preflights([model.pk], by=request.user)
    if not wants_part(request):
        messages.success(request, f"A test call to {model} was sent.")
        return redirect("endpoint_list")
    return _status(request, pk)


@require_safe
@members_only
def model_status(request: HttpRequest, pk: int) -> HttpResponse:
    return _status(request, pk)


@require_POST
@operators_only
def cache_purge(request: HttpRequest) -> HttpResponse:
    form = SteeringForm(request.POST)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect("endpoint_list")
    n = purge(by=request.user, reason=form.cleaned_data["reason"])
    messages.success(request, f"{format_count(n)} cached answers were cleared. Their trials stay.")
    return redirect("endpoint_list")


def _status(request: HttpRequest, pk: int) -> HttpResponse:
    models = LanguageModel.objects.visible_to(request.user).select_related("endpoint")
    model = get_object_or_404(prefetch_last_preflights(models), pk=pk)
    return render(request, "runs_app/partials/model_status.html", {"model": model})


def _edit(request: HttpRequest, form: NotedForm, heading: str, **shown: Any) -> HttpResponse:
    """Show or save the form of a row. `shown` is extra context, shown below the form with the row's history."""
    if request.method == "POST" and form.is_valid():
        row = form.save(commit=False)
        save_with_history(row, by=request.user, reason=form.cleaned_data["reason"])
        messages.success(request, f"{row} is saved.")
        return redirect("endpoint_list")
    fetch_choices(form)
    history = [] if form.instance.pk is None else list(form.instance.history[:CHANGES])
    context = {"form": form, "heading": heading, "history": history, "is_new": form.instance.pk is None}
    context |= shown
    return render(request, "runs_app/endpoint_form.html", context)
