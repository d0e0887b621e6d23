"""Azure OpenAI by its v1 API. A model's ID is the name of its deployment.

The base URL is https://RESOURCE.openai.azure.com/openai/v1. An operator must allow its host: the name of a resource
does not say whose it is.
"""

from runs_app.llm.providers.base import Provider

PROVIDER = Provider(
    name="azure",
    label="Azure OpenAI",
    needs_url=True,
    key_name="AZURE_OPENAI_API_KEY",
)
