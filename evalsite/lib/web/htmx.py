"""Detection of htmx requests. Live pages use htmx to load a part of themselves again and again."""

from django.http import HttpRequest


def wants_part(request: HttpRequest) -> bool:
    """Return whether htmx sent the request. It is False without the htmx middleware or without JavaScript."""
    return bool(getattr(request, "htmx", False))
