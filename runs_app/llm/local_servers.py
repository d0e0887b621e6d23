"""Local model servers: unloading a model that stalls."""

from __future__ import annotations

import logging
from dataclasses import replace

from runs_app.llm.calls import CallRequest
from runs_app.llm.http_transport import Exchange
from runs_app.llm.keys import KEYLESS, read_key
from runs_app.llm.providers import ollama

logger = logging.getLogger("evalsite.drain")

TIMEOUT_S = 10.0


async def evict(request: CallRequest) -> None:
    """Ask Ollama to unload the model of this request. The next call loads it again.

    This is not a call to a model: it costs nothing, it is not counted or stored, and its failure changes nothing.
    """
    root = (request.base_url or ollama.PROVIDER.default_url or "").rstrip("/").removesuffix("/v1")
    key = read_key(request.key_env) or KEYLESS
    exchange = Exchange(replace(request, timeout_s=TIMEOUT_S), key)
    headers = {} if key == KEYLESS else {"Authorization": f"Bearer {key}"}
    try:
        await exchange.post(f"{root}/api/generate", json={"model": request.model, "keep_alive": 0}, headers=headers)
    except Exception as error:  # noqa: BLE001 - a server that hangs may not answer this request either
        logger.warning("%s could not be unloaded: %s", request.model, type(error).__name__)
    else:
        logger.warning("%s stalled and was unloaded", request.model)
