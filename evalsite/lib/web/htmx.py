"""Pages that stay live: htmx asks again and again for a part of what a browser first asked for whole."""

from django.http import HttpRequest


def wants_part(request: HttpRequest) -> bool:
    """Whether htmx asks. Without its middleware, and without JavaScript, nobody does."""
    return bool(getattr(request, "htmx", False))
