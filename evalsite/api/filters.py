"""The filters of rows and the wave that a request names."""

from __future__ import annotations

from django.http import HttpRequest

from evalsite.api.problems import Problem
from evalsite.lib.text.names import UnknownNameError
from runs_app.models import Experiment, Wave

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
