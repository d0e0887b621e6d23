"""Detection of htmx requests. Live pages use htmx to refresh a part of themselves."""

from django.http import HttpRequest


def wants_part(request: HttpRequest) -> bool:
    """Return whether htmx sent the request. It is False without the htmx middleware or without JavaScript."""
    return bool(getattr(request, "htmx", False))
