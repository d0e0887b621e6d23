"""DeepSeek."""

from runs_app.llm.providers.base import Provider

PROVIDER = Provider(
    name="deepseek",
    label="DeepSeek",
    default_url="https://api.deepseek.com/v1",
    key_name="DEEPSEEK_API_KEY",
    family="deepseek",
)
