"""Readers for settings in the environment. They reject unknown names and invalid values."""

import ipaddress
import os
from collections.abc import Mapping

KNOWN_NAMES = frozenset(
    {
        "EVALSITE_ALLOWED_HOSTS",
        "EVALSITE_CALL_OBSERVER",
        "EVALSITE_DATA_DIR",
        "EVALSITE_DEBUG",
        "EVALSITE_DRAINS",
        "EVALSITE_EMAIL_FROM",
        "EVALSITE_EMAIL_HOST",
        "EVALSITE_EMAIL_PASSWORD",
        "EVALSITE_EMAIL_PORT",
        "EVALSITE_EMAIL_TLS",
        "EVALSITE_EMAIL_USER",
        "EVALSITE_HTTPS",
        "EVALSITE_LLM_ALLOWED_HOSTS",
        "EVALSITE_LLM_KEY_NAMES",
        "EVALSITE_OUTAGE_MINUTES",
        "EVALSITE_RATE_LIMIT_PAUSES",
        "EVALSITE_SUPERVISOR_CHANNEL",  # Only `up` sets it, for its child processes.
        "EVALSITE_POSTGRES_BIN",
        "EVALSITE_SECRET_KEY",
        "EVALSITE_STATIC_ROOT",  # Only `up` sets it, for its web server.
        "EVALSITE_SITE_URL",
        "EVALSITE_TRUSTED_PROXIES",
        "EVALSITE_WEBHOOK_HOSTS",
    }
)
KEY_PREFIX = "EVALSITE_KEY_"  # Keys of endpoints, each in a variable that the endpoint names.
TRUE, FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


class SettingError(Exception):
    """An unknown setting in the environment, or a setting with an invalid value."""


def refuse_unknown(environ: Mapping[str, str] = os.environ) -> None:
    """Raise SettingError if an EVALSITE_ variable is unknown.

    Without this check, a misspelt setting would be ignored silently and its default would apply.
    """
    names = [name for name in environ if name.startswith("EVALSITE_") and not name.startswith(KEY_PREFIX)]
    if unknown := sorted(set(names) - KNOWN_NAMES):
        raise SettingError(
            f"unknown setting {', '.join(unknown)}; valid settings: {', '.join(sorted(KNOWN_NAMES))}, {KEY_PREFIX}..."
        )


def read_flag(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    value = environ.get(name, "").strip().lower()
    if value not in TRUE | FALSE:
        raise SettingError(f"{name} must be one of {', '.join(sorted(TRUE | FALSE - {''}))}, not {value!r}")
    return value in TRUE


def read_words(name: str, default: str = "", environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the items of a comma-separated list."""
    return [word.strip() for word in environ.get(name, default).split(",") if word.strip()]


def read_whole_number(name: str, *, default: int, minimum: int = 1, environ: Mapping[str, str] = os.environ) -> int:
    value = environ.get(name, str(default)).strip()
    if not value.isdecimal() or int(value) < minimum:
        raise SettingError(f"{name} must be a whole number of at least {minimum}, not {value!r}")
    return int(value)


def read_networks(
    name: str, environ: Mapping[str, str] = os.environ
) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the addresses and networks of a comma-separated list."""
    networks = []
    for word in read_words(name, environ=environ):
        try:
            networks.append(ipaddress.ip_network(word))
        except ValueError:
            raise SettingError(f"{name} must contain addresses or networks such as 10.0.0.0/8, not {word!r}") from None
    return networks
