"""The views that send images to users who may see a dataset with them."""

from __future__ import annotations

from django.http import FileResponse, Http404, HttpRequest
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from datasets_app.models import Asset, Item
from evalsite.lib.ops.shared_files import SharedFile
from evalsite.lib.permissions import readers_only

# The content never changes, because its URL contains its hash. Shared caches must not store it, because access to it is
# restricted.
CACHE_CONTROL = "private, max-age=31536000, immutable"


@require_safe
@readers_only
def asset(request: HttpRequest, sha256: str) -> FileResponse:
    image = _get_visible_asset(request, sha256)
    return _send_file(image.shared_file, image.content_type)


@require_safe
@readers_only
def thumbnail(request: HttpRequest, sha256: str) -> FileResponse:
    return _send_file(_get_visible_asset(request, sha256).shared_thumbnail, "image/jpeg")


def _get_visible_asset(request: HttpRequest, sha256: str) -> Asset:
    image = get_object_or_404(Asset, pk=sha256)
    if not Item.objects.visible_to(request.user).filter(image=image).exists():
        raise Http404
    return image


def _send_file(shared: SharedFile, content_type: str) -> FileResponse:
    """Return the response with the file, or raise Http404 if the file is missing.

    Its path and its content type come from the row, never from an uploaded name.
    """
    try:
        file = shared.fetch().open("rb")
    except FileNotFoundError:
        raise Http404 from None
    response = FileResponse(file, content_type=content_type)
    response["Cache-Control"] = CACHE_CONTROL
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
