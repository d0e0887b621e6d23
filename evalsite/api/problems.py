"""The errors that operations of the API raise, and their problem details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from evalsite.lib.history import TransitionError
from evalsite.lib.web.problem_responses import make_problem
from grading_app.publish.export.file_formats import ExportError
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.planning.work import PlanError
from runs_app.run_control import LaunchError

NOT_FOUND = "There is no such row, or your account may not see it."


class Problem(Exception):
    """A request that is refused. `errors` has the name and the message of each wrong field."""

    def __init__(self, status: int, detail: str, errors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, errors


def add_handlers(api: NinjaAPI) -> None:
    """Turn the refusals of the site's own functions into problem details."""

    @api.exception_handler(Problem)
    def on_problem(request: HttpRequest, error: Problem) -> HttpResponse:
        return make_problem(error.status, error.detail, error.errors)

    @api.exception_handler(ValidationError)
    def on_wrong_field(request: HttpRequest, error: ValidationError) -> HttpResponse:
        errors = [(_name_field(one["loc"]), str(one["msg"])) for one in error.errors]
        return make_problem(422, "The request has wrong or missing fields.", errors)

    @api.exception_handler(SpecError)
    @api.exception_handler(PlanError)
    def on_wrong_design(request: HttpRequest, error: SpecError | PlanError) -> HttpResponse:
        return make_problem(422, "The design has problems.", [_split_problem(text) for text in error.problems])

    @api.exception_handler(ExportError)
    def on_wrong_export(request: HttpRequest, error: ExportError) -> HttpResponse:
        return make_problem(422, str(error))

    @api.exception_handler(TransitionError)
    @api.exception_handler(LaunchError)
    def on_wrong_state(request: HttpRequest, error: Exception) -> HttpResponse:
        return make_problem(409, str(error))

    @api.exception_handler(Http404)
    def on_hidden_row(request: HttpRequest, error: Http404) -> HttpResponse:
        return make_problem(404, NOT_FOUND)

    @api.exception_handler(HttpError)
    def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
        return make_problem(error.status_code, str(error))


def _name_field(path: Sequence[Any]) -> str:
    """Return the path of a field without its source, for example `limit` or `body.file`."""
    source, *names = map(str, path)
    names = [name for name in names if name not in ("page", "body")] or [source]
    return ".".join(names)


def _split_problem(text: str) -> tuple[str, str]:
    """Return the key and the message of a problem in a design, such as `dataset: there is no dataset pilot`."""
    field, colon, message = text.partition(": ")
    return (field, message) if colon and " " not in field else ("", text)
