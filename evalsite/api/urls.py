"""The addresses of the API, its OpenAPI document and its page."""

from __future__ import annotations

from django.urls import path

from evalsite.api import gateway_api
from evalsite.api.lab_api import api, api_docs
from evalsite.api.metrics import metrics

urlpatterns = [
    path("api/v1/", api.urls),
    path("api/docs", api_docs, name="api_docs"),
    path("metrics", metrics, name="metrics"),
    path("gateway/<slug:slug>/v1/models", gateway_api.gateway_models, name="gateway_models"),
    path("gateway/<slug:slug>/v1/chat/completions", gateway_api.gateway_chat, name="gateway_chat"),
    path("gateway/<slug:slug>/v1/messages", gateway_api.gateway_messages, name="gateway_messages"),
]
