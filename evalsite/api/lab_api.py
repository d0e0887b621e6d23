"""The API with its operations, and its OpenAPI document."""

from __future__ import annotations

from ninja import NinjaAPI
from ninja.operation import Operation

from evalsite.api import designs, downloads, experiments
from evalsite.api.problems import add_handlers


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
