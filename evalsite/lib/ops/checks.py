"""System checks for settings that are valid alone but wrong in combination. They run before every command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "testserver"})


@register("settings")
def check_shared_secret(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if a shared database is configured without a shared secret.

    Tasks and sessions are signed. Machines that share a database must therefore share the secret.
    """
    return _check_secret(os.environ)


def _check_secret(environ: Mapping[str, str]) -> list[CheckMessage]:
    if not environ.get("DATABASE_URL") or environ.get("EVALSITE_SECRET_KEY") or settings.DEBUG:
        return []
    return [
        Warning(
            "DATABASE_URL names a server that several machines may share, but EVALSITE_SECRET_KEY is not set.",
            hint="Set the same EVALSITE_SECRET_KEY on every machine. Otherwise each machine creates its own key, and"
            " cannot read the tasks and sessions of the others.",
            id="evalsite.W001",
        )
    ]


@register("settings")
def check_local_debugging(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report an error if debugging is on while the site is reachable under a public host name.

    The debug pages show settings and code to every visitor.
    """
    public_hosts = sorted(set(settings.ALLOWED_HOSTS) - LOCAL_HOSTS)
    if not (settings.DEBUG and public_hosts):
        return []
    return [
        Error(
            f"EVALSITE_DEBUG is on while the site answers to {', '.join(public_hosts)}.",
            hint="Unset EVALSITE_DEBUG, or serve only on this machine.",
            id="evalsite.E001",
        )
    ]


@register("settings")
def check_observer(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report an error if EVALSITE_CALL_OBSERVER cannot be imported. A worker would otherwise fail at its first call."""
    if not settings.CALL_OBSERVER:
        return []
    try:
        observer = import_string(settings.CALL_OBSERVER)
    except ImportError as error:
        reason = str(error)
    else:
        if callable(observer):
            return []
        reason = "it is not a function"
    message = "EVALSITE_CALL_OBSERVER names no package.module.function of this machine"
    return [Error(f"{message}: {settings.CALL_OBSERVER} ({reason})", id="evalsite.E003")]


@register("settings")
def check_queue_attempts(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report errors in Q_CLUSTER settings that would start slow tasks twice and retry failed tasks forever."""
    queue = settings.Q_CLUSTER
    problems = []
    if queue.get("scheduler", True):
        problems.append("scheduler must be off: it runs any function that a row names, and rows are not signed")
    if queue["queue_limit"] != queue["workers"] or queue["bulk"] != 1:
        problems.append("queue_limit must equal workers and bulk must be 1: a task's lock starts when it is prefetched")
    if queue["retry"] < 2 * queue["timeout"]:
        problems.append("retry must be well above timeout: a task is delivered again after it")
    if queue["max_attempts"] != 1 or not queue["ack_failures"]:
        problems.append("max_attempts must be 1 and ack_failures on: attempts are counted in our own rows")
    return [Error(f"Q_CLUSTER: {problem}.", id="evalsite.E002") for problem in problems]
