"""The routes of calls of programs to the models of an experiment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from runs_app.engine.requests import build_target
from runs_app.llm.access_tokens import get_access_key
from runs_app.llm.calls import CallFailure, CallRequest
from runs_app.llm.gateway import close_session, resolve_access
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.providers.base import Provider
from runs_app.models import Experiment, ExternalCall, LanguageModel, Run
from runs_app.planning.work import get_or_create_external_run

PATHS: dict[str, str] = {ExternalCall.Form.OPENAI: "/chat/completions", ExternalCall.Form.ANTHROPIC: "/v1/messages"}


@dataclass(frozen=True, slots=True)
class Route:
    """The run and the provider's address of all calls to one model of an experiment.

    The run was fetched with its design. `form` is the API that the provider speaks, which may be none of PATHS.
    `problem` says why the endpoint cannot be called, and is usually empty.
    """

    run: Run
    model: LanguageModel
    form: str
    request: CallRequest
    url: str = ""
    key: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    problem: str = ""


def list_models(experiment: Experiment) -> list[LanguageModel]:
    """Return the models that programs may call, with their endpoints, by name."""
    models = experiment.language_models.filter(is_active=True, endpoint__is_active=True)
    return list(models.select_related("endpoint").order_by("name"))


def find_route(experiment: Experiment, name: str) -> Route | None:
    """Return the route to the experiment's model with this name or provider's ID, or None."""
    found = next((one for one in list_models(experiment) if name in (one.name, one.model)), None)
    if found is None:
        return None
    run = get_or_create_external_run(experiment, found)
    model = run.condition.model
    target = build_target(model, run.experiment.request_timeout_s)
    provider = PROVIDERS[target.provider]
    form = ExternalCall.Form.OPENAI if provider.speaks_openai else provider.name
    request = CallRequest(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        messages=[],
        timeout_s=target.timeout_s,
        is_free=target.is_free,
        prices=target.prices,
        max_output_tokens=target.max_output_tokens,
        allowed_host=target.allowed_host,
    )
    try:
        url, key = resolve_access(request)
        if provider.build_grant is not None:
            key = asyncio.run(_fetch_access_key(provider, key, request.allowed_host))
    except CallFailure as failure:
        return Route(run, model, form, request, problem=failure.message)
    headers = {"Content-Type": "application/json", **provider.models_headers(key)}
    return Route(run, model, form, request, url + PATHS.get(form, ""), key, tuple(headers.items()))


async def _fetch_access_key(provider: Provider, key: str, allowed_host: str) -> str:
    """Return the key to send, in an event loop of its own. Raise CallFailure if there is none."""
    try:
        return await get_access_key(provider, key, allowed_host)
    finally:
        await close_session()
