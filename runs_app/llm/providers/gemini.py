"""Google's Gemini API. LiteLLM builds its addresses, which include the model."""

from runs_app.llm.providers.base import Provider

PROVIDER = Provider(
    name="gemini",
    label="Google Gemini",
    adapter="gemini",
    hosts=frozenset({"generativelanguage.googleapis.com"}),
    key_name="GEMINI_API_KEY",
    native=frozenset({"top_k"}),
    speaks_openai=False,
    family="gemini",
)
