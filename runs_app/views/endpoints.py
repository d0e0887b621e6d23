"""The pages and forms of endpoints, their models, prices and test calls."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app.tables import HistoryTable
from evalsite.lib.history import save_with_history
from evalsite.lib.permissions import is_operator, members_only, operators_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.form_fields import choose_number_fields, fetch_choices, get_first_error, offer_rows
from evalsite.lib.web.htmx import wants_part
from runs_app import model_lists
from runs_app.engine.model_state import forget_refusal
from runs_app.forms.fields import lock_field, split_names, state_bounds
from runs_app.forms.run_control import RunControlForm
from runs_app.llm.calls import CallFailure
from runs_app.models import Endpoint, LanguageModel
from runs_app.models.cache import list_purges, measure_cache, purge_cache
from runs_app.models.preflights import prefetch_last_preflights
from runs_app.monitoring.health import load_endpoints
from runs_app.tables.trials import PreflightTable
from runs_app.taskqueue.enqueue import enqueue_preflights
from runs_app.views.permissions import get_posted_data


class ChangeForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form of a row with a history. The user can give a reason for the change."""

    basic: ClassVar[tuple[str, ...]] = ()  # The fields that every row needs; the others are folded.

    reason = forms.CharField(max_length=500, required=False, label="Reason", help_text="Stored in the history")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)

    def list_basic(self) -> list[Any]:
        return [self[name] for name in self.basic]

    def list_advanced(self) -> list[Any]:
        return [field for field in self if field.name not in self.basic]

    def has_advanced_errors(self) -> bool:
        return any(field.errors for field in self.list_advanced())


class EndpointForm(ChangeForm):
    basic = ("provider", "base_url", "key_env", "name")

    class Meta:
        model = Endpoint
        fields = [
            "name", "provider", "base_url", "key_env", "max_concurrency", "adaptive", "requests_per_minute",
            "tokens_per_minute", "requests_per_day", "day_zone", "batch_api", "batch_max_requests", "batch_max_open",
            "provider_routes", "local_server", "is_free", "is_active",
        ]  # fmt: skip
        labels = {"max_concurrency": "Calls in flight", "key_env": "API key variable", "base_url": "Base URL"}

    provider_routes = forms.CharField(
        max_length=500,
        required=False,
        label="Provider routes",
        help_text="Comma-separated OpenRouter provider names. Each retry goes to the next provider",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["provider_routes"] = ", ".join(self.instance.provider_routes)
        if self.instance.is_in_use:
            lock_field(self.fields["provider"], "In use. To change the provider, create a new endpoint")

    def clean_provider_routes(self) -> list[str]:
        return split_names(self.cleaned_data["provider_routes"])


class LanguageModelForm(ChangeForm):
    basic = ("name", "endpoint", "model", "input_price", "output_price", "price_source", "price_date")

    class Meta:
        model = LanguageModel
        fields = [
            "name", "endpoint", "model", "input_price", "output_price", "cache_read_price", "cache_write_price",
            "batch_discount", "price_source", "price_date", "max_output_tokens", "sees_images", "structured_output",
            "cache_marks", "groups", "is_active",
        ]  # fmt: skip
        labels = {
            "model": "Model ID",
            "input_price": "Input price",
            "output_price": "Output price",
            "cache_read_price": "Cache read price",
            "cache_write_price": "Cache write price",
            "max_output_tokens": "Maximum output tokens",
        }
        field_classes = choose_number_fields(LanguageModel, fields)
        help_texts = {"input_price": "US dollars per million tokens. Empty: unknown, not free"}
        # Browsers accept only ISO dates in such a field. With another format the field is empty and submits nothing.
        widgets = {"price_date": forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.is_in_use:
            lock_field(self.fields["model"], "In use. To change the ID, create a new model")
            offer_rows(self, "endpoint", Endpoint.objects.filter(provider=self.instance.endpoint.provider))
            self.fields["endpoint"].help_text = "Only endpoints of the same provider, while no call is in flight"


CACHE_COUNT_LIMIT = 100_000
MAX_PURGES = 20
MAX_CHANGES = 100  # The latest changes of one row.
MAX_PREFLIGHTS = 20
READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_safe
@members_only
def endpoint_list(request: HttpRequest) -> HttpResponse:
    models = prefetch_last_preflights(LanguageModel.objects.select_related("endpoint").order_by("name"))
    endpoints = list(Endpoint.objects.visible_to(request.user).prefetch_related(Prefetch("models", models)))
    context = {
        "rows": load_endpoints(endpoints),
        "may_edit": is_operator(request.user),
        "cache": measure_cache(CACHE_COUNT_LIMIT),
        "purges": list(list_purges()[:MAX_PURGES]),
        "count_limit": CACHE_COUNT_LIMIT,
    }
    return render(request, "runs_app/endpoint_list.html", context)


@require_safe
@members_only
def endpoint_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the current load of the endpoint, for polls."""
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    return render(request, "runs_app/partials/endpoint_live.html", {"row": load_endpoints([endpoint])[0]})


@require_http_methods(READ_OR_WRITE)
@operators_only
def endpoint_new(request: HttpRequest) -> HttpResponse:
    return _edit_row(request, EndpointForm(get_posted_data(request)[0]), "New endpoint")


@require_http_methods(READ_OR_WRITE)
@operators_only
def endpoint_edit(request: HttpRequest, pk: int) -> HttpResponse:
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    return _edit_row(request, EndpointForm(get_posted_data(request)[0], instance=endpoint), f"Edit {endpoint}")


@require_http_methods(READ_OR_WRITE)
@operators_only
def model_new(request: HttpRequest) -> HttpResponse:
    initial = {"endpoint": request.GET.get("endpoint")}
    return _edit_row(request, LanguageModelForm(get_posted_data(request)[0], initial=initial), "New model")


@require_http_methods(READ_OR_WRITE)
@operators_only
def model_edit(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    form = LanguageModelForm(get_posted_data(request)[0], instance=model)
    return _edit_row(
        request,
        form,
        f"Edit {model}",
        refused_schema=model if model.schema_refused_at else None,
        preflights=PreflightTable(list(model.preflights.select_related("model__endpoint")[:MAX_PREFLIGHTS])),
    )


@require_POST
@operators_only
def endpoint_prices(request: HttpRequest, pk: int) -> HttpResponse:
    """Set the prices of this endpoint's models from litellm's list, and show a message for each model."""
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    repricings = model_lists.find_repricings(endpoint.models.select_related("endpoint"))
    n = model_lists.apply_repricings(repricings, by=request.user)
    messages.success(request, f"{n} of {len(repricings)} models have prices from {model_lists.get_source_name()}.")
    for repricing in repricings:
        (messages.warning if repricing.problem else messages.info)(request, repricing.summary)
    return redirect("endpoint_list")


@require_http_methods(READ_OR_WRITE)
@operators_only
def endpoint_models(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the endpoint's own list of models beside the site's models, and store the chosen ones.

    The list is fetched again before it is stored, so prices never come from the browser.
    """
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=pk)
    changes: list[model_lists.ModelListChange] | None = None
    if request.method == "POST":
        try:
            changes = model_lists.find_changes(endpoint, model_lists.fetch_models(endpoint))
            if chosen := set(request.POST.getlist("model")):
                picked = [change for change in changes if change.listed.model in chosen]
                added, updated = model_lists.apply_changes(endpoint, picked, by=request.user)
                messages.success(request, f"{added} models were added and {updated} updated from the list.")
                return redirect("endpoint_list")
        except CallFailure as failure:
            messages.error(request, f"The list of {endpoint} was not read: {failure.message}")
        except ValidationError as error:
            messages.error(request, "; ".join(error.messages))
    context = {"endpoint": endpoint, "changes": changes, "source": endpoint.price_source}
    return render(request, "runs_app/endpoint_models.html", context)


@require_POST
@operators_only
def model_schema(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget that the provider refused a schema, so that the next call asks with one again."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    if forget_refusal(model, by=request.user):
        messages.success(request, f"The next call to {model} asks with a strict JSON schema again.")
    return redirect("model_edit", model.pk)


@require_POST
@members_only
def model_check(request: HttpRequest, pk: int) -> HttpResponse:
    """Have a worker make one small call. The model's row shows the result."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    enqueue_preflights([model.pk], by=request.user)
    if not wants_part(request):
        messages.success(request, f"A test call to {model} was sent.")
        return redirect("endpoint_list")
    return _render_model_status(request, pk)


@require_safe
@members_only
def model_status(request: HttpRequest, pk: int) -> HttpResponse:
    return _render_model_status(request, pk)


@require_POST
@operators_only
def cache_purge(request: HttpRequest) -> HttpResponse:
    form = RunControlForm(request.POST)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect("endpoint_list")
    n = purge_cache(by=request.user, reason=form.cleaned_data["reason"])
    messages.success(request, f"{format_count(n)} cached answers were cleared. Their trials stay.")
    return redirect("endpoint_list")


def _render_model_status(request: HttpRequest, pk: int) -> HttpResponse:
    models = LanguageModel.objects.visible_to(request.user).select_related("endpoint")
    model = get_object_or_404(prefetch_last_preflights(models), pk=pk)
    return render(request, "runs_app/partials/model_status.html", {"model": model})


def _edit_row(request: HttpRequest, form: ChangeForm, heading: str, **extra_context: Any) -> HttpResponse:
    """Show or save the form of a row. The page also shows the row's history."""
    if request.method == "POST" and form.is_valid():
        row = form.save(commit=False)
        save_with_history(row, by=request.user, reason=form.cleaned_data["reason"])
        messages.success(request, f"{row} is saved.")
        return redirect("endpoint_list")
    fetch_choices(form)
    history = None if form.instance.pk is None else HistoryTable(list(form.instance.history[:MAX_CHANGES]))
    context = {"form": form, "heading": heading, "history": history}
    return render(request, "runs_app/endpoint_form.html", context | extra_context)
