"""Helpers that make gateway calls."""

import asyncio
from typing import Any

from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallReply, CallRequest

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "rating",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"rating": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["rating"],
            "additionalProperties": False,
        },
    },
}


def make_request(url: str | None, text: str = "What is 2 + 2?", **more: Any) -> CallRequest:
    fields: dict[str, Any] = {
        "provider": "openai",
        "model": "sim/a",
        "base_url": url,
        "key_env": None,
        "messages": [{"role": "user", "content": text}],
        **more,
    }
    return CallRequest(**fields)


def make_call(call_request: CallRequest) -> CallReply:
    """Return the reply to one call, made in its own event loop."""

    async def run_one() -> CallReply:
        try:
            return await gateway.call(call_request)
        finally:
            await gateway.close_session()

    return asyncio.run(run_one())


def get_failure(call_request: CallRequest) -> CallFailure:
    """Return the failure of a call that must fail."""
    try:
        reply = make_call(call_request)
    except CallFailure as failure:
        return failure
    raise AssertionError(f"the call did not fail: {reply}")
