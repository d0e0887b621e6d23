"""The views that send images to users who may see a dataset with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from django.http import FileResponse, Http404, HttpRequest
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from datasets_app.models import Asset, Item
from evalsite.lib.permissions import readers_only

# The content never changes, because its URL contains its hash. Shared caches must not store it, because access to it is
# restricted.
CACHE_CONTROL = "private, max-age=31536000, immutable"


@require_safe
@readers_only
def asset(request: HttpRequest, sha256: str) -> FileResponse:
    image = _get_visible_asset(request, sha256)
    return send_image(image.shared_file.fetch, image.content_type)


@require_safe
@readers_only
def thumbnail(request: HttpRequest, sha256: str) -> FileResponse:
    return send_image(_get_visible_asset(request, sha256).shared_thumbnail.fetch, "image/jpeg")


def _get_visible_asset(request: HttpRequest, sha256: str) -> Asset:
    image = get_object_or_404(Asset, pk=sha256)
    if not Item.objects.visible_to(request.user).filter(image=image).exists():
        raise Http404
    return image


def send_image(fetch: Callable[[], Path], content_type: str) -> FileResponse:
    """Return the response with the file that `fetch` finds, or raise Http404 if it is missing.

    Its path and its content type must come from the site, never from an uploaded name.
    """
    try:
        file = fetch().open("rb")
    except FileNotFoundError:
        raise Http404 from None
    response = FileResponse(file, content_type=content_type)
    response["Cache-Control"] = CACHE_CONTROL
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
