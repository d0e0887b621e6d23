"""xAI. It counts the tokens of reasoning beside those of the answer, while OpenAI's form includes them."""

from runs_app.llm.providers.base import Payload, Provider


def include_reasoning_tokens(payload: Payload) -> Payload:
    """Return the reply with output tokens that include reasoning, if its total shows that they do not yet."""
    usage = payload.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    if not isinstance(usage, dict) or not isinstance(details, dict):
        return payload
    stated = (usage.get("prompt_tokens"), usage.get("completion_tokens"), details.get("reasoning_tokens"))
    counts = [count for count in stated if isinstance(count, int) and count >= 0]
    if len(counts) < len(stated) or sum(counts) != usage.get("total_tokens"):
        return payload
    _, answer, reasoning = counts
    return payload | {"usage": usage | {"completion_tokens": answer + reasoning}}


PROVIDER = Provider(
    name="xai",
    label="xAI",
    default_url="https://api.x.ai/v1",
    key_name="XAI_API_KEY",
    repair_reply=include_reasoning_tokens,
    family="grok",
)
