"""Two workers with their own data folders drain one experiment with images, which they fetch from a bucket.

In network namespaces they reach the database, the bucket and the provider only over TCP, and not each other.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from urllib.parse import urlsplit

import boto3
import pytest
from django.db import connection
from moto.server import ThreadedMotoServer

from datasets_app.models import Asset
from grading_app.grading.consistency_check import find_differences
from runs_app.models import Endpoint, Trial, Worker
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.factories.queues import make_image
from tests.system.processes.workers import drain_process, get_database_url

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


class Loopback:
    """Two machines that share this machine's network."""

    host = "127.0.0.1"
    shells = ((), ())

    def publish(self, port_or_socket):
        """Return the port at which the machines reach this port of loopback, or this Unix socket."""
        return port_or_socket


class Namespaces:
    """Two machines, each in a network namespace. They reach only `host`, through a link of their own."""

    host = "10.231.0.1"

    def __init__(self, stack):
        self._stack = stack
        self.shells = tuple(self._add_machine(number) for number in (1, 2))
        self._run("addr", "add", f"{self.host}/32", "dev", "lo", undo=("addr", "del", f"{self.host}/32", "dev", "lo"))

    def _run(self, *arguments, undo=None):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S607 - found by `which`
        if undo:
            self._stack.callback(subprocess.run, ["ip", *undo], capture_output=True)

    def _add_machine(self, number):
        name, link, inside = f"evalsite-{number}", f"evalsite{number}", f"evalsite{number}i"
        self._run("netns", "add", name, undo=("netns", "del", name))
        self._run("link", "add", link, "type", "veth", "peer", "name", inside, undo=("link", "del", link))
        self._run("link", "set", inside, "netns", name)
        self._run("addr", "add", f"10.231.{number}.1/24", "dev", link)
        self._run("link", "set", link, "up")
        for command in ("link set lo up", f"addr add 10.231.{number}.2/24 dev {inside}", f"link set {inside} up",
                        f"route add default via 10.231.{number}.1"):  # fmt: skip
            self._run("-n", name, *command.split())
        return "ip", "netns", "exec", name

    def publish(self, port_or_socket):
        server = socket.create_server((self.host, 0))
        self._stack.callback(server.close)
        threading.Thread(target=_accept, args=(server, port_or_socket), daemon=True).start()
        return server.getsockname()[1]


def _accept(server, target):
    with contextlib.suppress(OSError):  # The server was closed.
        while True:
            client, _ = server.accept()
            if isinstance(target, int):
                inner = socket.create_connection(("127.0.0.1", target))
            else:
                inner = socket.socket(socket.AF_UNIX)
                inner.connect(target)
            for source, sink in ((client, inner), (inner, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture(params=["loopback", "namespaces"])
def network(request):
    if request.param == "loopback":
        yield Loopback()
        return
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    with contextlib.ExitStack() as stack:
        try:
            yield Namespaces(stack)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine allows no network namespaces: {error.stderr.decode().strip()}")


@pytest.fixture
def bucket(monkeypatch):
    """Return the port of an S3 server on loopback, and its bucket for images."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    created = boto3.resource("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1").Bucket("images")
    created.create()
    yield port, created
    server.stop()


def build_database_url(network):
    """Return the address of the tests' database for the machines. In a namespace, they reach it over TCP."""
    parameters = connection.settings_dict
    if isinstance(network, Loopback) or not parameters["HOST"].startswith("/"):
        return get_database_url()
    port = network.publish(f"{parameters['HOST']}/.s.PGSQL.{parameters['PORT']}")
    return f"postgresql://{parameters['USER']}@{network.host}:{port}/{parameters['NAME']}"


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


def test_workers_on_two_machines_need_no_shared_folder(network, bucket, tmp_path):
    s3_port, shared = bucket
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = make_run_with_images(f"http://{network.host}:{network.publish(urlsplit(provider.url).port)}/v1")
        for image in Asset.objects.all():
            shared.put_object(Key=image.shared_file.name, Body=image.file.read_bytes())
            image.file.unlink()
        common = {
            "EVALSITE_S3_BUCKET": "images",
            "EVALSITE_S3_ENDPOINT": f"http://{network.host}:{network.publish(s3_port)}",
            "EVALSITE_LLM_ALLOWED_HOSTS": network.host,
            "DATABASE_URL": build_database_url(network),
        }
        folders = [tmp_path / name for name in ("one", "two")]
        with contextlib.ExitStack() as stack:
            machines = zip(network.shells, folders, strict=True)
            processes = [
                stack.enter_context(drain_process(shell, **common, EVALSITE_DATA_DIR=str(folder)))
                for shell, folder in machines
            ]
            for process in processes:
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
