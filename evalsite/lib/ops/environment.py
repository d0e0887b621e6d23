"""Settings in the environment: readers that reject unknown names and invalid values, and the part that a child gets."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from importlib.util import find_spec

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
        "EVALSITE_HANDOVER",  # Only `up` sets it, for its web server and its gateway.
        "EVALSITE_LLM_ALLOWED_HOSTS",
        "EVALSITE_LLM_KEY_NAMES",
        "EVALSITE_LOG_FORMAT",
        "EVALSITE_OUTAGE_MINUTES",
        "EVALSITE_RATE_LIMIT_PAUSES",
        "EVALSITE_RAW_RESPONSE_DAYS",
        "EVALSITE_SUPERVISOR_CHANNEL",  # Only `up` sets it, for its child processes.
        "EVALSITE_POSTGRES_BIN",
        "EVALSITE_S3_BUCKET",
        "EVALSITE_S3_ENDPOINT",
        "EVALSITE_S3_PREFIX",
        "EVALSITE_S3_REGION",
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


def read_choice(name: str, choices: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> str:
    """Return one of the choices, by default the first."""
    value = environ.get(name, "").strip().lower() or choices[0]
    if value not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


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


def read_bucket(environ: Mapping[str, str] = os.environ) -> dict[str, str | bool]:
    """Return the options of the bucket for images, empty without one."""
    values = {
        name: environ.get(f"EVALSITE_S3_{name}", "").strip() for name in ("BUCKET", "ENDPOINT", "PREFIX", "REGION")
    }
    if not values["BUCKET"]:
        if useless := [f"EVALSITE_S3_{name}" for name, value in values.items() if value]:
            raise SettingError(f"{', '.join(useless)}: set EVALSITE_S3_BUCKET too")
        return {}
    if find_spec("storages") is None or find_spec("boto3") is None:
        raise SettingError("EVALSITE_S3_BUCKET needs further packages: install evalsite[s3]")
    options: dict[str, str | bool] = {"bucket_name": values["BUCKET"], "location": values["PREFIX"]}
    if values["REGION"]:
        options["region_name"] = values["REGION"]
    if values["ENDPOINT"]:  # Servers other than Amazon's rarely have a host name for each bucket.
        if not values["ENDPOINT"].startswith(("http://", "https://")):
            raise SettingError("EVALSITE_S3_ENDPOINT must start with https:// or http://")
        options |= {"endpoint_url": values["ENDPOINT"], "addressing_style": "path"}
    return options


PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def build_child_environment(*names: str, **values: str) -> dict[str, str]:
    """Return the variables of `PASSED_ON` and `names` that are set, and `values`. `PG*` names all with this prefix.

    The environment of the site holds keys of providers and the password of the database. A child gets only what it
    needs.
    """
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    chosen = {*PASSED_ON, *names}
    inherited = {
        name: value for name, value in os.environ.items() if name in chosen or (prefixes and name.startswith(prefixes))
    }
    return inherited | values
