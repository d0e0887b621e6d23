"""The WSGI application of the site."""

import gc
import os
from typing import Any

import django
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest

from evalsite.command_line import COLLECT_AFTER
from evalsite.lib.ops.private_files import UMASK

gc.set_threshold(COLLECT_AFTER, 20, 20)
os.umask(UMASK)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")


class Request(WSGIRequest):
    """A request that ignores an invalid charset. Django would fail before any middleware on a bytes-to-bytes codec."""

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        try:
            super()._set_content_type_params(meta)  # type: ignore[misc]
        except LookupError:
            self._encoding = None  # Use UTF-8, as Django does for an unknown charset.


class Handler(WSGIHandler):
    request_class = Request

    @staticmethod
    def warm_up() -> None:
        """Prepare the pages. The web server calls this in a thread."""
        from evalsite.warm_up import warm_up

        warm_up()


django.setup(set_prefix=False)
application = Handler()
