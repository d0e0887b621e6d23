"""The rows that a request reaches: those of its account, within the limits of its token, and its filters.

All lookups of the API go through this module.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from datasets_app.models import Dataset
from evalsite.api.problems import Problem
from evalsite.lib.permissions import is_member
from evalsite.lib.text.names import UnknownNameError
from runs_app.models import Experiment, LanguageModel, Prompt, Run, Trial, Wave

READ, RUN, ADMIN = "read", "run", "admin"


class AccessToken:
    """A check that the token permits a scope. A session permits everything that its account may do."""

    openapi_security_schema = {"type": "http", "scheme": "bearer"}

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def __call__(self, request: HttpRequest) -> bool:
        token = get_token(request)
        if token is not None and not token.permits(self.scope):
            raise Problem(403, f"The token {token} has the permissions “{token.scope}”; this needs “{self.scope}”.")
        return True


def get_token(request: HttpRequest) -> Any:
    return getattr(request, "api_token", None)


def list_experiments(request: HttpRequest) -> Any:
    visible = Experiment.objects.visible_to(request.user)
    token = get_token(request)
    return visible.filter(pk=token.experiment_id) if token and token.experiment_id else visible


def get_experiment(request: HttpRequest, name: str) -> Experiment:
    experiment: Experiment = get_object_or_404(list_experiments(request).select_related("dataset", "owner"), slug=name)
    if experiment.is_stored:
        raise Problem(409, f"The answers and grades of {experiment} are in a file. Bring them back first.")
    return experiment


def get_editable_experiment(request: HttpRequest, name: str) -> Experiment:
    """Return an experiment that the account may change. Others are 404, as on pages."""
    get_experiment(request, name)
    editable = Experiment.objects.editable_by(request.user).select_related("dataset", "owner")
    experiment: Experiment = get_object_or_404(editable, slug=name)
    return experiment


def refuse_creation(request: HttpRequest) -> None:
    """Raise Problem if the request may not create an experiment."""
    token = get_token(request)
    if token and token.experiment_id:
        raise Problem(403, f"The token {token} reaches only the experiment {token.experiment}.")
    if not is_member(request.user):
        raise Problem(404, "Your account only reads.")


def _narrow(request: HttpRequest, rows: Any) -> Any:
    """Return the rows that belong to the only experiment of the token, or all rows."""
    token = get_token(request)
    if not (token and token.experiment_id):
        return rows
    return rows.filter(experiments=token.experiment_id).distinct()


def list_datasets(request: HttpRequest) -> Any:
    return _narrow(request, Dataset.objects.visible_to(request.user))


def list_prompts(request: HttpRequest) -> Any:
    return _narrow(request, Prompt.objects.visible_to(request.user))


def list_models(request: HttpRequest) -> Any:
    models = LanguageModel.objects.visible_to(request.user).select_related("endpoint")
    return _narrow(request, models)


def list_runs(request: HttpRequest) -> Any:
    return Run.objects.filter(experiment__in=list_experiments(request)).with_design()


def list_trials(request: HttpRequest) -> Any:
    return Trial.objects.filter(run__experiment__in=list_experiments(request))


NO_FILTERS = ("limit", "after")
FILTERED = {
    "parameters": [
        {
            "in": "query",
            "name": name,
            "required": False,
            "schema": {"type": "string"},
            "description": f"Only rows with this {name}",
        }
        for name in ("status", "condition", "wave", "item", "category")
    ]
}


def read_filters(request: HttpRequest) -> dict[str, str]:
    return {name: str(value) for name, value in request.GET.items() if value and name not in NO_FILTERS}


def find_wave(experiment: Experiment, name: str) -> Wave | None:
    try:
        wave: Wave | None = experiment.find_wave(name) if name else None
    except UnknownNameError as error:
        raise Problem(422, "The request has wrong or missing fields.", [("wave", str(error))]) from error
    return wave
