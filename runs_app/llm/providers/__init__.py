"""Providers of models, one module each. Pure: a declaration, and functions for what only this provider does.

    provider = PROVIDERS["groq"]
    provider.default_url, provider.parameters, provider.statuses

The registry finds each module that defines `PROVIDER`. CONTRIBUTING.md describes how to add one. Only the gateway acts
on these declarations with litellm; they hold no code of it.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from runs_app.llm.providers.base import Provider


def _find_providers() -> dict[str, Provider]:
    """Return the providers by name, in the order of their labels, with OpenAI first."""
    modules = [import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found: list[Provider] = [module.PROVIDER for module in modules if hasattr(module, "PROVIDER")]
    found.sort(key=lambda provider: (provider.name != "openai", provider.label.casefold()))
    names = [provider.name for provider in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two providers have the name {', '.join(sorted(repeated))}")
    return dict(zip(names, found, strict=True))


PROVIDERS: dict[str, Provider] = _find_providers()
SELF_HOSTED = frozenset(name for name, provider in PROVIDERS.items() if provider.is_self_hosted)
"""Providers whose server the users run, so no price list has its models."""
