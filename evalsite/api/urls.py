"""The addresses of the API, its OpenAPI document and its page."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe
from ninja import NinjaAPI
from ninja.operation import Operation

from evalsite.api import designs, downloads, experiments, gateway_api
from evalsite.api.metrics import metrics
from evalsite.api.problems import add_handlers
from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names


class LabApi(NinjaAPI):
    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


api = LabApi(
    title="Evalsite",
    version="1",
    description="Errors are problem details (RFC 9457). Lists are pages: pass `next` as `after` for the next page.",
    urls_namespace="api",
    docs_url=None,
)
add_handlers(api)
api.add_router("", designs.router)
api.add_router("", experiments.router)
api.add_router("", downloads.router)


@require_safe
@readers_only
@hides_model_names()
def api_docs(request: HttpRequest) -> HttpResponse:
    operations = sorted(list_operations(), key=lambda one: one["tag"])
    sections = [(tag, list(rows)) for tag, rows in groupby(operations, key=lambda one: one["tag"])]
    return render(request, "api_docs.html", {"sections": sections})


def list_operations() -> list[dict[str, Any]]:
    """Return the operations of the OpenAPI document in the form that the page shows."""
    schema = api.get_openapi_schema()
    operations = []
    for address, methods in schema["paths"].items():
        for method, content in methods.items():
            operations.append(
                {
                    "method": method.upper(),
                    "address": address,
                    "anchor": content["operationId"],
                    "tag": content["tags"][0],
                    "summary": content["summary"],
                    "description": _split_code(content.get("description", "")),
                    "parameters": [
                        {**one, "description": _split_code(one.get("description", ""))}
                        for one in [*content["parameters"], *_list_body_fields(schema, content)]
                    ],
                }
            )
    return operations


def _split_code(text: str) -> list[str]:
    """Return the parts of a text: every second one is code, which the text has between backticks."""
    return text.split("`") if text else []


def _list_body_fields(schema: dict[str, Any], content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of the JSON body of an operation, in the form of its parameters."""
    if "requestBody" not in content:
        return []
    reference = content["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    body = schema["components"]["schemas"][reference]
    return [
        {"name": name, "in": "body", "required": name in body.get("required", []), **field}
        for name, field in body["properties"].items()
    ]


urlpatterns = [
    path("api/v1/", api.urls),
    path("api/docs", api_docs, name="api_docs"),
    path("metrics", metrics, name="metrics"),
    path("gateway/<slug:slug>/v1/models", gateway_api.gateway_models, name="gateway_models"),
    path("gateway/<slug:slug>/v1/chat/completions", gateway_api.gateway_chat, name="gateway_chat"),
    path("gateway/<slug:slug>/v1/messages", gateway_api.gateway_messages, name="gateway_messages"),
]
