"""Transitions in the admin, as bulk actions and as buttons. One page asks for the reason in both cases.

Every change of a row is a POST. The POST of an action or a button shows the page. The page then posts the reason to the
list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from datasets_app.models import TransitionError


@dataclass(frozen=True)
class Verb:
    """An action on rows whose state is in `sources`. Empty `sources` allow any state.

    `act(rows, by, reason)` performs it, or raises TransitionError or ValueError with a message for the person.
    """

    name: str
    label: str
    consequence: str
    permission: str
    act: Callable[[list[Any], Any, str], None]
    sources: Collection[str] = ()
    needs_reason: bool = True

    def fits(self, row: Any) -> bool:
        return not self.sources or row.status in self.sources


class VerbAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin whose only bulk actions are its `verbs`. It offers no bulk deletion."""

    verbs: ClassVar[Sequence[Verb]] = ()
    change_form_template = "admin/change_form_with_verbs.html"

    def batches(self, rows: Iterable[Any]) -> Iterable[list[Any]]:
        """Group the rows so that each group succeeds or fails together. By default each row is its own group."""
        return ([row] for row in rows)

    def allowed_verbs(self, request: HttpRequest) -> list[Verb]:
        return [verb for verb in self.verbs if request.user.has_perm(verb.permission)]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {verb.name: (_action(verb), verb.name, f"{verb.label} selected") for verb in self.allowed_verbs(request)}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        verbs = [verb for verb in self.allowed_verbs(request) if row is not None and verb.fits(row)]
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "verbs": verbs})

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Answer after the form was saved. If a verb's button was pressed, ask for the reason."""
        verb = next((verb for verb in self.allowed_verbs(request) if verb.name == request.POST.get("_verb")), None)
        if verb is None:
            return super().response_change(request, obj)
        return self.ask_reason(request, verb, [obj])

    def ask_reason(self, request: HttpRequest, verb: Verb, rows: list[Any], error: str = "") -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"{verb.label}: reason",
            "opts": self.opts,
            "verb": verb,
            "rows": rows,
            "error": error,
            "checkbox": ACTION_CHECKBOX_NAME,
            "changelist": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"),
        }
        return TemplateResponse(request, "admin/ask_reason.html", context)

    def perform(self, request: HttpRequest, verb: Verb, rows: list[Any]) -> HttpResponse | None:
        """Perform the verb if the person has confirmed it with a reason; otherwise ask for the reason."""
        if not request.user.has_perm(verb.permission):
            raise PermissionDenied
        if "confirmed" not in request.POST:
            return self.ask_reason(request, verb, rows)
        try:
            reason = _reason_of(request, verb)
        except ValidationError as error:
            return self.ask_reason(request, verb, rows, error=" ".join(error.messages))
        done = sum(self._try(request, verb, batch, reason) for batch in self.batches(rows))
        if done:
            self.message_user(request, f"{verb.label}: {done} done.", messages.SUCCESS)
        return None

    def _try(self, request: HttpRequest, verb: Verb, batch: list[Any], reason: str) -> int:
        try:
            verb.act(batch, request.user, reason)
        except (TransitionError, ValueError) as error:
            self.message_user(request, str(error), messages.ERROR)
            return 0
        return len(batch)


def _reason_of(request: HttpRequest, verb: Verb) -> str:
    needed = {"required": "Enter a reason. It is stored in the history."}
    return str(forms.CharField(required=verb.needs_reason, error_messages=needed).clean(request.POST.get("reason")))


def _action(verb: Verb) -> Callable[[VerbAdmin, HttpRequest, Any], HttpResponse | None]:
    def action(modeladmin: VerbAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return modeladmin.perform(request, verb, list(queryset))

    return action
