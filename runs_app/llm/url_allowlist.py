"""The allow-list of addresses to which keys and items may be sent. Pure: the caller passes the list."""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from runs_app.llm.providers import PROVIDERS

PROVIDER_HOSTS = frozenset(host for provider in PROVIDERS.values() for host in provider.all_hosts)


def find_url_problem(url: str, allowed_hosts: Collection[str]) -> str | None:
    """Return why `url` may not be called, or None. `allowed_hosts` has names, or "name:port" for a single port."""
    return _find_url_problem(url, tuple(allowed_hosts))


@functools.lru_cache(maxsize=1024)  # Every call asks again, mostly about the same address.
def _find_url_problem(url: str, allowed_hosts: tuple[str, ...]) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        return "This is not a valid address."
    if parts.scheme not in ("http", "https") or not host:
        return "The address must start with http:// or https:// and name a host."
    if parts.username is not None or parts.password is not None:
        return "The address must not hold a name or a password; the key comes from an environment variable."
    if _is_loopback(host):
        return None
    if _is_link_local(host):
        return "Link-local addresses, such as a cloud's metadata service, are never called."
    if host in PROVIDER_HOSTS or host in allowed_hosts or f"{host}:{port}" in allowed_hosts:
        return None if parts.scheme == "https" or host not in PROVIDER_HOSTS else "Providers are called by https only."
    return f"{host} is not on the list of allowed hosts; an operator adds it to EVALSITE_LLM_ALLOWED_HOSTS."


def read_grantable_host(url: str, resolve: Callable[..., list[Any]] | None = None) -> tuple[str, str]:
    """Return the host of a URL, with its port if it has one, and why an operator may not allow it on a page, or "".

    A page allows only hosts of the public internet. A host in a private network may be any service of the lab, so the
    person who runs the site names it in the environment.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    name = host if parts.port is None else f"{host}:{parts.port}"
    try:
        entries = (resolve or socket.getaddrinfo)(host, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return name, f"{host} has no address. Check the spelling."
    if not all(_is_public(str(entry[4][0])) for entry in entries):
        return name, (
            f"{host} is an address of a private network. To allow it, add {name} to EVALSITE_LLM_ALLOWED_HOSTS in the"
            " environment of the site, and restart it."
        )
    return name, ""


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return bool(mapped.is_global and not mapped.is_multicast)


def _is_link_local(host: str) -> bool:
    """Return whether a host is link-local. In most clouds such addresses serve the machine's own credentials."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "metadata.google.internal"
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_link_local or (mapped is not None and mapped.is_link_local)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
