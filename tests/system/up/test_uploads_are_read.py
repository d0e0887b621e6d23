"""A worker of the running site reads an upload, from the files to the dataset."""

import json

import pytest

from tests.system.up.conftest import Site, until

pytestmark = pytest.mark.processes

STAGE = """
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from datasets_app import pending_uploads
user = User.objects.create_user("reader")
file = SimpleUploadedFile("items.csv", b"id,question\\nq1,One?\\nq2,Two?\\n")
upload = pending_uploads.stage_upload(user, {"items": file}, slug="read", about={})
upload.request_job("columns")
print(upload.folder)
"""
IMPORT = """
from django.contrib.auth.models import User
from datasets_app import pending_uploads
user = User.objects.get(username="reader")
pending_uploads.find_upload(user.pk, "{token}").request_job("import", {{}})
"""


def shell(site: Site, code: str) -> str:
    return site.manage("shell", "--no-imports", "-c", code).strip()


def test_a_queue_worker_detects_the_columns_and_imports_the_items(lasting_site: Site) -> None:
    site = lasting_site
    folder = site.place / "data" / "media" / "uploads" / "/".join(shell(site, STAGE).split("/")[-2:])

    def job():
        return json.loads((folder / "job.json").read_text())

    until(lambda: job()["state"] in ("done", "failed"))
    assert job()["error"] == ""
    assert json.loads((folder / "columns.json").read_text())["columns"] == ["id", "question"]
    shell(site, IMPORT.format(token=folder.name))
    until(lambda: job()["kind"] == "import" and job()["state"] in ("done", "failed"))
    assert job()["dataset"] == ["read", 1]
    assert "2 active items" in site.manage("dataset", "show", "read@1")
