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

from evalsite.lib.history import TransitionError


@dataclass(frozen=True)
class RowAction:
    """An action on rows whose state is in `sources`. Empty `sources` allow any state.

    `act(rows, by, reason)` performs it, or raises TransitionError or ValueError with a message for the user.
    `check(row, by)` raises TransitionError if this user may not act on this row; then the row's page does not offer it.
    """

    name: str
    label: str
    consequence: str
    permission: str
    act: Callable[[list[Any], Any, str], None]
    sources: Collection[str] = ()
    needs_reason: bool = True
    check: Callable[[Any, Any], None] | None = None

    def allows(self, row: Any, by: Any) -> bool:
        if self.sources and row.status not in self.sources:
            return False
        try:
            return self.check is None or self.check(row, by) is None
        except TransitionError:
            return False


def call_on_each(method: str) -> Callable[[list[Any], Any, str], None]:
    """Return the act of a RowAction that calls this method of each row, with `by` and `reason`."""

    def act(rows: list[Any], by: Any, reason: str) -> None:
        for row in rows:
            getattr(row, method)(by=by, reason=reason)

    return act


class RowActionAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin whose only bulk actions are its `row_actions`. It offers no bulk deletion."""

    row_actions: ClassVar[Sequence[RowAction]] = ()
    change_form_template = "admin/change_form_with_actions.html"

    def group_rows(self, rows: Iterable[Any]) -> Iterable[list[Any]]:
        """Group the rows so that each group succeeds or fails together. By default each row is its own group."""
        return ([row] for row in rows)

    def list_allowed_actions(self, request: HttpRequest) -> list[RowAction]:
        return [action for action in self.row_actions if request.user.has_perm(action.permission)]

    def _list_row_actions(self, request: HttpRequest, row: Any) -> list[RowAction]:
        return [action for action in self.list_allowed_actions(request) if action.allows(row, request.user)]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {
            action.name: (_make_bulk_action(action), action.name, f"{action.label} selected")
            for action in self.list_allowed_actions(request)
        }

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        row_actions = self._list_row_actions(request, row) if row is not None else []
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "row_actions": row_actions})

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Answer after the form was saved. If the button of a row action was pressed, ask for the reason."""
        pressed = request.POST.get("_row_action")
        action = next((action for action in self._list_row_actions(request, obj) if action.name == pressed), None)
        if action is None:
            return super().response_change(request, obj)
        return self.ask_reason(request, action, [obj])

    def ask_reason(self, request: HttpRequest, action: RowAction, rows: list[Any], error: str = "") -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"{action.label}: reason",
            "opts": self.opts,
            "action": action,
            "rows": rows,
            "error": error,
            "checkbox": ACTION_CHECKBOX_NAME,
            "changelist": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"),
        }
        return TemplateResponse(request, "admin/ask_reason.html", context)

    def perform(self, request: HttpRequest, action: RowAction, rows: list[Any]) -> HttpResponse | None:
        """Perform the action if the person has confirmed it with a reason; otherwise ask for the reason."""
        if not request.user.has_perm(action.permission):
            raise PermissionDenied
        if "confirmed" not in request.POST:
            return self.ask_reason(request, action, rows)
        try:
            messages_by_code = {"required": "Enter a reason. It is stored in the history."}
            field = forms.CharField(required=action.needs_reason, error_messages=messages_by_code)
            reason = str(field.clean(request.POST.get("reason")))
        except ValidationError as error:
            return self.ask_reason(request, action, rows, error=" ".join(error.messages))
        count = sum(self._perform_on_group(request, action, group, reason) for group in self.group_rows(rows))
        if count:
            self.message_user(request, f"{action.label}: {count} done.", messages.SUCCESS)
        return None

    def _perform_on_group(self, request: HttpRequest, action: RowAction, group: list[Any], reason: str) -> int:
        try:
            action.act(group, request.user, reason)
        except (TransitionError, ValueError) as error:
            self.message_user(request, str(error), messages.ERROR)
            return 0
        return len(group)


def _make_bulk_action(action: RowAction) -> Callable[[RowActionAdmin, HttpRequest, Any], HttpResponse | None]:
    def perform_selected(modeladmin: RowActionAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return modeladmin.perform(request, action, list(queryset))

    return perform_selected
