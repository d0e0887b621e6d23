"""Unit files, compose file and proxies name existing commands, settings and paths, and keep their hardening."""

import gzip
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.urls import reverse

from evalsite.lib.ops.environment import KNOWN_NAMES
from tests.factories.http_servers import serve
from tests.system.up.conftest import free_port, wait_until

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SITES = {name: service for name, service in COMPOSE["services"].items() if name in ("web", "worker")}
# A readable version and a digest, either literal or from a required variable.
PINNED = re.compile(r"\w+:\d[\w.-]*@(sha256:[0-9a-f]{64}|\$\{\w+_DIGEST(:\?.+)?\})")
OTHER_VARIABLES = {"DATABASE_URL", "TMPDIR", "FORWARDED_ALLOW_IPS"}
needs_nginx = pytest.mark.skipif(
    not (shutil.which("nginx") and shutil.which("openssl")), reason="there is no nginx or openssl (Debian: nginx-light)"
)
needs_caddy = pytest.mark.skipif(not shutil.which("caddy"), reason="there is no caddy (Debian: caddy)")

HARDENING = {
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "SystemCallFilter=@system-service",
    "User=evalsite",
}


def get_name(path):
    return path.name


def read_values(unit, key):
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def parse_command(name, *arguments):
    """Parse the arguments as the command does. Raise SystemExit or CommandError for an unknown argument."""
    command = load_command_class(get_commands()[name], name)
    return vars(command.create_parser("manage.py", name).parse_args(list(arguments)))


def find_unknown_settings(names):
    own_names = {name for name in names if name not in OTHER_VARIABLES and not name.endswith("_API_KEY")}
    return own_names - KNOWN_NAMES


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze (Debian: systemd)")
def test_systemd_accepts_the_units(tmp_path):
    """A link to the checkout replaces /opt/evalsite, so that systemd finds the programs. It has no spaces either."""
    checkout, units = tmp_path / "checkout", tmp_path / "units"
    checkout.symlink_to(ROOT)
    units.mkdir()
    for unit in UNITS:
        (units / unit.name).write_text(unit.read_text().replace("/opt/evalsite", str(checkout)))
    process = subprocess.run(
        [shutil.which("systemd-analyze"), "verify", "--recursive-errors=no", *map(str, units.iterdir())],
        capture_output=True,
        text=True,
    )
    complaints = [line for line in process.stderr.splitlines() if "evalsite" in line]
    assert (process.returncode, complaints) == (0, [])


@pytest.mark.parametrize("unit", SERVICES, ids=get_name)
def test_a_unit_starts_an_existing_command_with_valid_options(unit):
    (line,) = read_values(unit, "ExecStart")
    words = shlex.split(line)
    assert words[:3] == ["/opt/evalsite/.venv/bin/python", "-m", "evalsite"], "a checkout and a wheel both have it"
    assert parse_command(*words[3:])


@pytest.mark.parametrize("unit", SERVICES, ids=get_name)
def test_a_unit_contains_every_hardening_option(unit):
    assert set(unit.read_text().splitlines()) >= HARDENING


def test_the_stop_timeout_of_a_worker_exceeds_its_grace_period():
    (unit,) = [unit for unit in UNITS if unit.name == "evalsite-drain.service"]
    options = parse_command("drain", *shlex.split(read_values(unit, "ExecStart")[0])[4:])
    assert options["grace"] < float(read_values(unit, "TimeoutStopSec")[0])
    assert read_values(unit, "KillMode") == ["mixed"]
    compose = COMPOSE["services"]["worker"]
    assert parse_command(*compose["command"])["grace"] < float(compose["stop_grace_period"].removesuffix("s"))


def test_the_environment_file_names_existing_settings():
    names = re.findall(r"^#?([A-Z_]+)=", (DEPLOY / "evalsite.env.example").read_text(), re.MULTILINE)
    assert {"DATABASE_URL", "EVALSITE_SECRET_KEY", "EVALSITE_DATA_DIR"} <= set(names)
    assert find_unknown_settings(names) == set()


@pytest.mark.parametrize("name", SITES)
def test_a_compose_service_runs_an_existing_command_with_existing_settings(name):
    service = SITES[name]
    assert parse_command(*service["command"])
    assert find_unknown_settings(service["environment"]) == set()
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True


def test_references_of_the_compose_file_exist():
    services, volumes = COMPOSE["services"], set(COMPOSE["volumes"])
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in volumes or (DEPLOY / source).exists()
        image = service["image"]
        assert "$" not in image or ":?" in image, "a digest that is missing is asked for"
        assert image == "evalsite" or PINNED.fullmatch(image), "an image without a digest changes under one's feet"
    assert services["web"]["volumes"] == services["worker"]["volumes"], "workers need the images of the site"
    assert "ports" not in services["database"]
    assert "ports" not in services["web"]
    build = services["web"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert PINNED.fullmatch(f"python:3@{build['args']['PYTHON_DIGEST']}")


def test_the_base_image_has_a_digest_without_a_default():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    bases = [line.removeprefix("FROM ") for line in lines if line.startswith("FROM ")]
    assert bases
    for base in bases:
        assert PINNED.fullmatch(base), base
    assert [line for line in lines if line.startswith("ARG ")] == ["ARG PYTHON_DIGEST"], "no default that is no digest"


def test_required_image_digests_are_documented():
    required = set(re.findall(r"\{(\w+_DIGEST):\?", (DEPLOY / "compose.yaml").read_text()))
    assert required == {"POSTGRES_DIGEST", "CADDY_DIGEST", "PYTHON_DIGEST"}
    documented = (ROOT / "docs" / "operating.md").read_text()
    documented_images = {name: image for image, name in re.findall(r"inspect (\S+) .*# (\w+)=sha256", documented)}
    assert set(documented_images) == required
    files = "\n".join((DEPLOY / name).read_text() for name in ("compose.yaml", "Dockerfile"))
    assert all(f"{image}@${{{name}" in files for name, image in documented_images.items())


def test_the_image_installs_the_hashed_lock_file_and_does_not_run_as_root():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    sources = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    packages = {settings.ROOT_URLCONF.partition(".")[0], "datasets_app", "runs_app", "grading_app", "templates"}
    assert packages <= set(sources)
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER evalsite"]
    assert (ROOT / "requirements.lock").read_text().count("--hash=sha256:") > 50


def test_proxies_forward_host_and_scheme_and_allow_large_imports():
    nginx = (DEPLOY / "nginx.conf").read_text()
    assert "proxy_set_header Host $http_host;" in nginx
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in nginx
    assert int(re.search(r"client_max_body_size (\d+)m;", nginx)[1]) * 2**20 >= settings.UPLOAD_BYTES
    caddy = (DEPLOY / "Caddyfile").read_text()
    assert int(re.search(r"max_size (\d+)MB", caddy)[1]) * 10**6 >= settings.UPLOAD_BYTES


def test_nginx_buffers_every_request_except_imports_and_proxies_time_out_slow_headers():
    nginx, caddy = ((DEPLOY / name).read_text() for name in ("nginx.conf", "Caddyfile"))
    (pattern,) = re.findall(r"location ~ (\S+) \{\s+proxy_request_buffering off;", nginx)
    assert nginx.count("proxy_request_buffering off;") == 1
    assert "client_header_timeout 10s;" in nginx
    assert "read_header 10s" in caddy
    for address in (reverse("dataset_new"), reverse("dataset_norms", args=["apples", 2])):
        assert re.search(pattern, address)
    assert not re.search(pattern, reverse("experiment_new"))


@needs_caddy
def test_caddy_accepts_its_file(tmp_path):
    """Debian 12 has Caddy 2.6, and the compose file a later one."""
    process = subprocess.run(
        [shutil.which("caddy"), "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile"],
        env={"EVALSITE_HOST": "evalsite.lab.example", "HOME": str(tmp_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert "Valid configuration" in process.stdout + process.stderr


DOWNLOAD = b"key,answer\n" + b"one,two\n" * 500


class Echo(BaseHTTPRequestHandler):
    """A site that answers with the Host header that it received, or with a table of text."""

    def do_GET(self):
        is_table = self.path == "/table.csv"
        self.send_response(200)
        self.send_header("Content-Type", "text/csv; charset=utf-8" if is_table else "text/plain")
        self.end_headers()
        self.wfile.write(DOWNLOAD if is_table else self.headers["Host"].encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def upstream():
    """Return the port of such a site."""
    with serve(HTTPServer(("127.0.0.1", 0), Echo)) as echo:
        yield echo.server_port


@pytest.fixture
def open_by_nginx(tmp_path, upstream):
    """Return a function that opens a path of the site through nginx with its shipped file."""
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    subject = ["-subj", "/CN=evalsite.lab.example", "-keyout", key, "-out", certificate]
    subprocess.run(
        [shutil.which("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject],
        check=True,
        capture_output=True,
    )
    shipped = (DEPLOY / "nginx.conf").read_text()
    shipped = re.sub(r"server \{\s+listen 80;.*?\n\}\n", "", shipped, flags=re.DOTALL)
    shipped = re.sub(r"listen \[::\]:443.*", "", shipped).replace("listen 443", f"listen 127.0.0.1:{port}")
    shipped = re.sub(r"ssl_certificate_key .*", f"ssl_certificate_key {key};", shipped)
    shipped = re.sub(r"ssl_certificate .*", f"ssl_certificate {certificate};", shipped)
    shipped = shipped.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{upstream}")
    temporary = "".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {temporary}\n"
    (tmp_path / "nginx.conf").write_text(f"{main}{shipped}}}\n")
    process = subprocess.Popen([shutil.which("nginx"), "-c", tmp_path / "nginx.conf", "-p", tmp_path])
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False

    def open_path(path, **headers):
        host = {"Host": f"evalsite.lab.example:{port}"}
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=host | headers)
        return urllib.request.urlopen(request, timeout=30, context=context)  # noqa: S310

    open_path.port = port  # type: ignore[attr-defined]
    try:
        wait_until(lambda: can_connect(port), 30)
        yield open_path
    finally:
        process.terminate()
        process.wait(30)


@needs_nginx
def test_nginx_passes_on_the_host_with_its_port(open_by_nginx):
    """The site compares the origin of a form with it, so sign-in works on ports other than 443 too."""
    with open_by_nginx("/") as response:
        assert response.read().decode() == f"evalsite.lab.example:{open_by_nginx.port}"


@needs_nginx
def test_nginx_compresses_downloads_of_text(open_by_nginx):
    with open_by_nginx("/table.csv", **{"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(response.read()) == DOWNLOAD
    with open_by_nginx("/table.csv") as response:
        assert response.read() == DOWNLOAD


@needs_caddy
def test_caddy_compresses_downloads_of_text(tmp_path, upstream):
    port = free_port()
    process = subprocess.Popen(
        [shutil.which("caddy"), "run", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile"],
        env={
            "EVALSITE_HOST": f"http://127.0.0.1:{port}", "EVALSITE_UPSTREAM": f"127.0.0.1:{upstream}",
            "CADDY_ADMIN": f"127.0.0.1:{free_port()}", "HOME": str(tmp_path), "PATH": os.defpath,
        },
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: can_connect(port), 30)
        address = f"http://127.0.0.1:{port}/table.csv"
        with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(response.read()) == DOWNLOAD
        with urllib.request.urlopen(address) as response:
            assert response.read() == DOWNLOAD
    finally:
        process.terminate()
        process.wait(30)


def can_connect(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


def test_a_command_run_by_hand_uses_the_settings_of_the_services(tmp_path):
    """The wrapper reads the environment file and runs a command of its own checkout, from any folder."""
    (tmp_path / "site.env").write_text(f"EVALSITE_DATA_DIR={tmp_path}/data\nEVALSITE_MISSPELT=1\n")
    process = subprocess.run(
        [DEPLOY / "manage", "check"], cwd=tmp_path, env={"SITE_ENV": str(tmp_path / "site.env"), "PATH": "/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 2
    assert "unknown setting EVALSITE_MISSPELT" in process.stderr
