"""A size limit for the files of a request, enforced before any view runs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.files.uploadhandler import FileUploadHandler


class BoundedUpload(FileUploadHandler):
    """An upload handler that limits the size and the sender of files.

    It runs before Django's own handlers, which would write any upload of any sender to disk.
    """

    received = 0

    def handle_raw_input(self, input_data: Any, META: Any, content_length: int, *args: Any, **kwargs: Any) -> None:
        self._check_size(content_length)

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Raise PermissionDenied unless the user is signed in. No page offers a file field to anybody else."""
        if self.request is None or not self.request.user.is_authenticated:
            raise PermissionDenied("only signed-in users may upload files")
        super().new_file(*args, **kwargs)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        self.received += len(raw_data)
        self._check_size(self.received)
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """Return None, so that the next handler keeps the file."""

    def _check_size(self, size: int) -> None:
        if size <= settings.UPLOAD_BYTES:
            return
        for handler in self.request.upload_handlers if self.request else []:
            handler.upload_interrupted()  # Delete the partial file now, not at garbage collection.
        raise RequestDataTooBig(f"a request may contain at most {settings.UPLOAD_BYTES // 2**20} MiB of files")
