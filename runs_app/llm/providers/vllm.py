"""vLLM, a server of local models with OpenAI's API."""

from runs_app.llm.providers.base import COMMON_PARAMETERS, SERVER_PARAMETERS, Provider

PROVIDER = Provider(
    name="hosted_vllm",
    label="vLLM",
    adapter="hosted_vllm",
    needs_url=True,
    key_name="VLLM_API_KEY",
    is_self_hosted=True,
    parameters=COMMON_PARAMETERS | SERVER_PARAMETERS,
)
