"""A queue worker of the running site imports an upload into a dataset."""

import json

import pytest

from tests.system.up.conftest import Site, wait_until

pytestmark = pytest.mark.processes

STAGE = """
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from datasets_app import pending_uploads
user = User.objects.create_user("reader")
file = SimpleUploadedFile("items.csv", b"id,question\\nq1,One?\\nq2,Two?\\n")
upload = pending_uploads.stage_upload(user, {"items": file}, slug="read", about={})
upload.request_job("columns")
print(upload.token)
"""
IMPORT = """
from django.contrib.auth.models import User
from datasets_app import pending_uploads
user = User.objects.get(username="reader")
pending_uploads.find_upload(user.pk, "{token}").request_job("import", {{}})
"""
READ = """
import json
from django.contrib.auth.models import User
from datasets_app import pending_uploads
user = User.objects.get(username="reader")
upload = pending_uploads.find_upload(user.pk, "{token}")
job = upload.job
columns = upload.table.columns if upload.table else []
print(json.dumps([job.kind, job.state, job.problem, job.result, columns]))
"""


def run_code(site: Site, code: str) -> str:
    return site.manage("shell", "--no-imports", "-c", code).strip()


def test_a_queue_worker_detects_the_columns_and_imports_the_items(lasting_site: Site) -> None:
    site = lasting_site
    token = run_code(site, STAGE)

    def read_job():
        return json.loads(run_code(site, READ.format(token=token)))

    wait_until(lambda: read_job()[1] in ("done", "failed"))
    assert read_job() == ["columns", "done", "", {}, ["id", "question"]]
    run_code(site, IMPORT.format(token=token))
    wait_until(lambda: read_job()[0] == "import" and read_job()[1] in ("done", "failed"))
    assert read_job()[1:4] == ["done", "", {"dataset": ["read", 1]}]
    assert "2 active items" in site.manage("dataset", "show", "read@1")
