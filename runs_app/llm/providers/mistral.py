"""Mistral. It has its own name for the seed, and states reasoning as a part of the answer."""

from typing import Any

from runs_app.llm.providers.base import Payload, Provider


def join_parts(payload: Payload) -> Payload:
    """Return the reply with the text of its answer as one text, and its thinking in a field of its own."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return payload
    return payload | {"choices": [_join_choice(choice) for choice in choices]}


def _join_choice(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(parts, list):
        return choice
    thinking = [part.get("thinking") for part in parts if isinstance(part, dict) and part.get("type") == "thinking"]
    nested = [part for entry in thinking for part in (entry if isinstance(entry, list) else [{"text": entry}])]
    joined = message | {"content": _join_texts(parts)}
    if reasoning := _join_texts(nested):
        joined["reasoning_content"] = reasoning
    return choice | {"message": joined}


def _join_texts(parts: list[Any]) -> str:
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


PROVIDER = Provider(
    name="mistral",
    label="Mistral",
    default_url="https://api.mistral.ai/v1",
    key_name="MISTRAL_API_KEY",
    renamed={"seed": "random_seed"},
    request_rates=(("x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"),),
    token_rates=(("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),),
    repair_reply=join_parts,
    family="mistral",
)
