"""Two workers with their own data folders drain one experiment with images, which they fetch from a bucket."""

import boto3
import pytest
from moto.server import ThreadedMotoServer

from datasets_app.models import Asset
from grading_app.consistency_check import find_differences
from runs_app.models import Endpoint, Trial, Worker
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.factories.queues import make_image
from tests.system.processes.workers import drain_process

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def bucket_settings(monkeypatch):
    """Return the environment of a worker whose images are in a bucket, on an S3 server on loopback."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    boto3.resource("s3", endpoint_url=address, region_name="us-east-1").Bucket("images").create()
    yield {"EVALSITE_S3_BUCKET": "images", "EVALSITE_S3_ENDPOINT": address}
    server.stop()


def make_run_with_images(base_url):
    endpoint = factories.make_endpoint("rehearsal", base_url=base_url, max_concurrency=16, is_free=True)
    experiment = factories.make_experiment(
        "pictures",
        dataset=factories.make_dataset("pictures", [{"key": f"p{n}", "image": make_image(n)} for n in range(12)]),
        models=[factories.make_model("sim", endpoint=endpoint)],
        prompts=[factories.make_prompt("look", messages=[{"role": "user", "content": "What is this? {{image}}"}])],
        samples=20,
        max_usd=None,
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


def test_workers_on_two_machines_need_no_shared_folder(bucket_settings, tmp_path):
    address = bucket_settings["EVALSITE_S3_ENDPOINT"]
    bucket = boto3.resource("s3", endpoint_url=address, region_name="us-east-1").Bucket("images")
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = make_run_with_images(provider.url)
        for image in Asset.objects.all():
            bucket.put_object(Key=image.shared_file.name, Body=image.file.read_bytes())
            image.file.unlink()
        folders = [tmp_path / name for name in ("one", "two")]
        machines = [{**bucket_settings, "EVALSITE_DATA_DIR": str(folder)} for folder in folders]
        with drain_process(**machines[0]) as one, drain_process(**machines[1]) as two:
            for process in (one, two):
                output, _ = process.communicate(timeout=300)
                assert process.returncode == 0, output
        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", 240, 0)
        assert provider.counters()["requests"] == 240
    assert Worker.objects.count() == 2
    assert set(Trial.objects.values_list("worker", flat=True)) <= set(Worker.objects.values_list("pk", flat=True))
    cached = [{path.name for path in (folder / "media" / "assets").rglob("*.png")} for folder in folders]
    assert set.union(*cached) == {f"{image.sha256}.png" for image in Asset.objects.all()}
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []
