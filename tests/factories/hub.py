"""A server on loopback that speaks the endpoints of the Hugging Face hub that a download needs."""

import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.factories.http_servers import serve

FIRST, SECOND = "1" * 40, "2" * 40


class Hub:
    """One repository: its files by name and commit, and its branches. `requests` has (method, path, authorization)."""

    def __init__(self, repository):
        self.repository = repository
        self.files = {FIRST: {}, SECOND: {}}
        self.branches = {"main": SECOND, "v1": FIRST}
        self.address = ""
        self.card = {}
        self.private = False
        self.sha = None
        self.error = None
        self.declared = {}
        self.requests = []

    def commit(self, revision):
        return revision if revision in self.files else self.branches.get(revision)


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self._answer(body=True)

    def do_HEAD(self):
        self._answer(body=False)

    def _answer(self, body):
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append((self.command, self.path, self.headers.get("Authorization")))
        status, content, headers = self._find(path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(self.hub.declared.get(path.rpartition("/")[2], len(content))))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _find(self, path):
        api, files = f"/api/datasets/{self.hub.repository}/revision/", f"/datasets/{self.hub.repository}/resolve/"
        if self.hub.error:
            return self.hub.error, b"{}", {}
        if self.hub.private and self.headers.get("Authorization") != "Bearer hf_secret":
            return 401, b"{}", {"X-Error-Code": "GatedRepo" if self.hub.private == "gated" else "RepoNotFound"}
        if path.startswith(api):
            return self._describe(path.removeprefix(api))
        if path.startswith(files):
            commit, _, name = path.removeprefix(files).partition("/")
            content = self.hub.files.get(commit, {}).get(name)
            if content is None:
                return 404, b"{}", {"X-Error-Code": "EntryNotFound"}
            return 200, content, {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        return 404, b"{}", {"X-Error-Code": "RepoNotFound"}

    def _describe(self, revision):
        commit = self.hub.commit(revision)
        if commit is None:
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        siblings = [{"rfilename": name, "size": len(data)} for name, data in self.hub.files[commit].items()]
        content = {
            "id": self.hub.repository,
            "sha": self.hub.sha or commit,
            "siblings": siblings,
            "cardData": self.hub.card,
        }
        return 200, json.dumps(content).encode(), {"Content-Type": "application/json"}


@contextmanager
def serve_hub(repository="lab/sums"):
    hub = Hub(repository)
    with serve(ThreadingHTTPServer(("127.0.0.1", 0), type("OfHub", (Handler,), {"hub": hub}))) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        yield hub


@contextmanager
def serve_site_hub(monkeypatch, home, first, second):
    """Serve a hub with one file at two commits, and set it in the environment with a token that must not be sent."""
    for name in ("HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        hub.card = {"license": "mit"}
        for commit, table in ((FIRST, first), (SECOND, second)):
            hub.files[commit] = {"README.md": b"# Sums", "data/test.csv": table.encode()}
        yield hub
