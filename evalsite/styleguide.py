"""Sample data for the style guide: made-up rows in the real components. Served only while DEBUG is on."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import django_filters as filters
import django_tables2 as tables
from django import forms
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.web.form_fields import AmountField
from evalsite.lib.web.list_page import paginate_table

STATUSES = ["draft", "approved", "pending", "running", "paused", "done", "failed", "cancelled", "archived"]
STARTED = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)
NUMBERS = {"class": "num"}


class SampleTable(tables.Table):
    """A table of runs as on any list page."""

    name = tables.Column(linkify=lambda record: f"#{record['name']}")
    status = tables.Column()
    progress = tables.Column(orderable=False, empty_values=())
    trials = tables.Column(attrs={"th": NUMBERS, "td": NUMBERS})
    cost = tables.Column(attrs={"th": NUMBERS, "td": NUMBERS}, empty_values=())
    started = tables.Column(attrs={"td": {"class": "tight"}})

    def render_status(self, value: str) -> SafeString:
        return tags.status_badge(value)

    def render_progress(self, record: dict[str, Any]) -> SafeString:
        return tags.progress(*record["parts"], legend=False, label=record["name"])

    def render_trials(self, value: int) -> str:
        return tags.count(value)

    def render_cost(self, value: Decimal | None) -> SafeString:
        return tags.money(value)

    def render_started(self, value: datetime) -> SafeString:
        return tags.local_time(value)


class ExampleForm(forms.Form):
    """A form with each kind of control once."""

    name = forms.SlugField(help_text="Lower case, with hyphens. It becomes part of every condition's name.")
    endpoint = forms.ChoiceField(choices=[("", "Choose an endpoint"), ("lab", "lab-vllm"), ("openai", "openai")])
    samples = forms.IntegerField(min_value=1, max_value=1000, initial=20, help_text="Repetitions of a cell.")
    budget = AmountField(required=False, help_text="US dollars. A run never spends more.")
    order = forms.ChoiceField(
        choices=[("side", "Conditions side by side"), ("sequence", "Conditions sequentially")],
        widget=forms.RadioSelect,
        initial="side",
    )
    notes = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), required=False)
    items = forms.FileField(required=False, help_text="CSV, JSONL or Parquet, at most 200 MB.")
    cache = forms.BooleanField(
        required=False, initial=True, help_text="Never pay twice for the same request and epoch."
    )


class RunFilter(filters.FilterSet):
    """A filter bar as on any list page."""

    q = filters.CharFilter(label="Search", method="unfiltered", widget=forms.TextInput(attrs={"type": "search"}))
    status = filters.ChoiceFilter(
        label="Status", method="unfiltered", choices=[(word, word) for word in STATUSES], empty_label="Any"
    )
    model = filters.ChoiceFilter(
        label="Model", method="unfiltered", choices=[("a", "sonnet"), ("b", "local-a")], empty_label="Any"
    )

    def unfiltered(self, queryset: Any, name: str, value: object) -> Any:
        return queryset


def build_example_rows() -> list[dict[str, Any]]:
    """Return runs in every state, with extreme values: nothing done, one failure in a million, an unknown price."""
    parts = [(0, 0, 0, 800), (412, 32, 3, 353), (999_999, 0, 1, 0), (120, 0, 44, 636), (0, 0, 0, 800), (300, 0, 0, 500)]
    costs = [Decimal(0), Decimal("1.2404"), Decimal("1412.5"), None, Decimal("0.000012"), Decimal("0.0834")]
    return [
        {
            "name": f"sonnet--{number}f3a91c0b27e",
            "status": status,
            "parts": numbers,
            "trials": sum(numbers),
            "cost": cost,
            "started": STARTED + timedelta(hours=5 * number),
        }
        for number, (status, numbers, cost) in enumerate(
            zip(["pending", "running", "done", "failed", "draft", "cancelled"], parts, costs, strict=True)
        )
    ]


def build_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context of `styleguide.html` for this request."""
    table = SampleTable(build_example_rows())
    paginate_table(request, table, 5)
    users = get_user_model()._default_manager.none()
    return {
        "statuses": STATUSES,
        "table": table,
        "form": ExampleForm(),
        "wrong_form": ExampleForm({"name": "Not a slug", "samples": "0", "endpoint": ""}),
        "filter": RunFilter(request.GET, queryset=users),
        "started": STARTED,
        "spent": Decimal("3.412"),
        "reserved": Decimal("0.25"),
        "limit": Decimal(5),
        "question": "How pleasant or unpleasant does this image make you feel?\nAnswer with a number from 1 to 7.",
    }
