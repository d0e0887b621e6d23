"""Addresses that a browser can open with GET, used to return a person to a page after signing in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.http import Http404, HttpRequest
from django.urls import resolve
from django.utils.http import url_has_allowed_host_and_scheme


def accepts_get(view: Callable[..., Any]) -> bool:
    """Return whether a view answers GET. The view's class or Django's method decorators decide this."""
    view_class = getattr(view, "view_class", None)
    if view_class is not None:
        return hasattr(view_class, "get") and "get" in view_class.http_method_names
    current: Any = view
    while current is not None:
        if isinstance(current, partial):  # As the views of the API's document.
            current = current.func
        methods = inspect.getclosurevars(current).nonlocals.get("request_method_list")
        if methods is not None and "GET" not in methods:
            return False
        current = getattr(current, "__wrapped__", None)
    return True


def _is_page(path: str) -> bool:
    try:
        return accepts_get(resolve(path).func)
    except Http404:
        return False


def find_nearest_page(address: str) -> str:
    """Return the address if it answers GET, else the nearest address above it that does."""
    path = urlsplit(address).path
    if _is_page(path):
        return address
    while path.strip("/"):
        path = path.rstrip("/").rpartition("/")[0] + "/"
        if _is_page(path):
            return path
    return "/"


def find_page(request: HttpRequest) -> str:
    """Return the page that the person was on. For a form or a part of a page, return the page that contains it."""
    referer = request.headers.get("Referer") if request.method == "POST" else ""
    current_url = request.headers.get("HX-Current-URL") or referer
    if current_url and url_has_allowed_host_and_scheme(
        current_url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        parts = urlsplit(current_url)
        return find_nearest_page(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    return find_nearest_page(request.get_full_path())
