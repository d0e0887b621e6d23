"""HTTP with a token: errors as exceptions, retries that never act twice, and no redirects."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
ATTEMPTS = 5
RETRIED = {429, 502, 503, 504}
LONGEST_WAIT_S = 60.0


class ApiError(Exception):
    """An answer of the site that refuses the request. `errors` has the message of each wrong field by its name."""

    def __init__(self, status: int, detail: str, errors: Mapping[str, str] | None = None) -> None:
        self.status, self.detail, self.errors = status, detail, dict(errors or {})
        fields = "".join(f"\n  {field}: {message}" for field, message in self.errors.items())
        super().__init__(f"{status}: {detail}{fields}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect, because another host must not receive the token."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Connection:
    """A site and a token. The token is sent only to this site."""

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of the site must start with https:// or http://, not {url!r}")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            warnings.warn("the token is sent without encryption; use an https address", stacklevel=4)
        token = token.strip()  # A token that was read from a file ends with a line break.
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token contains characters that no token has; copy it again")
        self.url, self._token, self._timeout_s = url.rstrip("/"), token, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __repr__(self) -> str:
        return f"<{self.url}>"

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the content of an answer. While the site is still computing it (202), ask again."""
        while True:
            with self.open("GET", path, query) as answer:
                content = json.load(answer)
                if answer.status != 202:
                    return content
                time.sleep(_read_wait(answer.headers, 3.0))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a change. Its idempotency key is new, so that retries after lost answers never act twice."""
        with self.open("POST", path, None, json.dumps(body, default=str).encode()) as answer:
            return json.load(answer)

    def list_rows(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list."""
        after: str | None = ""
        while after is not None:
            page = self.get(path, {**(query or {}), "limit": 1000, "after": after})
            yield from page["items"]
            after = page["next"]

    def open(self, method: str, path: str, query: Mapping[str, Any] | None, body: bytes | None = None) -> Any:
        """Return an open answer. Retry if the site is busy or cannot be reached.

        Raise ApiError if the site refuses, and ConnectionError if it cannot be reached.
        """
        chosen = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
        address = f"{self.url}/api/v1{path}" + (f"?{urllib.parse.urlencode(chosen)}" if chosen else "")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310 - checked above
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._opener.open(request, timeout=self._timeout_s)
            except urllib.error.HTTPError as error:
                if error.code not in RETRIED or attempt == ATTEMPTS:
                    raise _read_error(error, path) from None
                time.sleep(_read_wait(error.headers, 2.0**attempt / 4))
            except OSError as error:
                if attempt == ATTEMPTS:
                    reason = getattr(error, "reason", error)
                    raise ConnectionError(f"the site {self.url} cannot be reached: {reason}") from error
                time.sleep(2.0**attempt / 4)
        raise AssertionError("the last attempt returns or raises")


def _read_wait(headers: Any, otherwise: float) -> float:
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else otherwise


def _read_error(error: urllib.error.HTTPError, path: str) -> ApiError:
    """Return the exception. One for a missing row names the path, because the site's sentence names no row."""
    where = f" The request was for {path}" if error.code == 404 else ""
    try:
        problem = json.loads(error.read(2**20))
        errors = {one["field"]: one["message"] for one in problem.get("errors", [])}
        return ApiError(error.code, problem["detail"] + where, errors)
    except (ValueError, KeyError, TypeError):
        return ApiError(error.code, f"{error.reason}.{where}" if where else str(error.reason))
