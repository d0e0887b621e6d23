"""A data folder has one site at a time, and its address is one that people can type."""

import json
import socket
import subprocess
import sys

import pytest

from runs_app.simulator.config import SimulatorConfig
from tests.prepared_database import build_environment
from tests.system.postgres.conftest import ROOT
from tests.system.up.conftest import Site, free_port, wait_until

pytestmark = pytest.mark.processes


def run_command(place, *words):
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        env=build_environment(place),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("words", [["up"], ["demo"], ["demo", "--no-serve"]], ids=" ".join)
def test_a_second_site_on_a_folder_is_refused_with_the_address_of_the_first(lasting_site, words):
    wait_until(lambda: "Evalsite is at" in lasting_site.read_log())
    process = run_command(lasting_site.place, *words)
    assert (process.returncode, process.stdout) == (2, "")
    assert f"already runs at http://127.0.0.1:{lasting_site.port}/. Use it, or stop it first." in process.stderr
    assert "set EVALSITE_DATA_DIR to another folder" in process.stderr
    assert process.stderr.count("\n") == 1
    assert lasting_site.is_served()


@pytest.mark.parametrize("port", ["99999", "-1", "web"])
def test_a_port_that_is_none_is_refused_in_a_sentence(place, port):
    process = run_command(place, "up", "--port", port)
    assert process.returncode == 2
    assert f"argument --port: {port} is not a port; enter a number from 1 to 65535" in process.stderr
    assert "Traceback" not in process.stderr


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address_may_have_the_brackets_of_a_url(place):
    site = Site(place, "--workers=1", "--host=[::1]")
    try:
        wait_until(lambda: f"Evalsite is at http://[::1]:{site.port}/" in site.read_log())
        assert site.stop() == 0
    finally:
        site.process.kill()
        site.process.wait()


def store_models(place, port):
    folder = place / "data" / "demo"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(json.dumps(SimulatorConfig(port=port).build_arguments()))


def test_the_simulated_models_of_a_demonstration_are_served_by_every_later_site(place):
    port = free_port()
    store_models(place, port)
    site = Site(place, "--workers=1")
    try:
        wait_until(lambda: f"models | listening on http://127.0.0.1:{port}/v1" in site.read_log())
        wait_until(site.is_served)
        assert site.stop() == 0
    finally:
        site.process.kill()
        site.process.wait()


def test_a_site_whose_simulated_models_cannot_start_works_without_them(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        store_models(place, other.getsockname()[1])
        site = Site(place, "--workers=1")
        try:
            wait_until(lambda: site.read_log().count("models ended with") >= 4)
            wait_until(site.is_served)
            assert site.stop() == 0
        finally:
            site.process.kill()
            site.process.wait()
