"""A Hub on loopback: repositories that its own client creates, uploads to and reads."""

import base64
import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

from tests.factories.http_servers import serve

COMMIT = "c" * 40


def build_pull_request(repository):
    """Return the details of a pull request that its author has just opened."""
    return {
        "num": 1, "title": "Upload", "status": "draft", "isPullRequest": True, "createdAt": "2026-01-01T00:00:00.000Z",
        "repo": {"name": repository, "type": "model"}, "author": {"name": "lab"}, "events": [], "diff": "",
        "changes": {"base": "refs/heads/main"}, "filesWithConflicts": [],
    }  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """`repositories` maps "datasets/OWNER/NAME" or "models/OWNER/NAME" to their files by path."""

    protocol_version = "HTTP/1.1"
    repositories = {}

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path).path.strip("/").split("/")
        if self.headers.get("Authorization") != "Bearer hub-token":
            return self.send(401, {"error": "no token"})
        if parts == ["api", "repos", "create"]:
            wanted = json.loads(body)
            name = f"{wanted.get('type') or 'model'}s/{wanted['organization']}/{wanted['name']}"
            if name in self.repositories:
                return self.send(409, {"error": "You already created this repository"})
            self.repositories[name] = {}
            return self.send(200, {"url": f"http://{self.headers['Host']}/{name.removeprefix('models/')}"})
        if parts == ["api", "validate-yaml"]:
            wanted = json.loads(body)
            _, metadata, _ = wanted["content"].split("---\n", 2)
            valid = wanted["repoType"] != "dataset" or {"license", "configs"} <= yaml.safe_load(metadata).keys()
            return self.send(200 if valid else 400, {"errors": [], "warnings": []})
        name = "/".join(parts[1:4])
        if name not in self.repositories:
            return self.send(404, {"error": "no repository"}, {"X-Error-Code": "RepoNotFound"})
        if parts[4] == "discussions":
            return self.send(200, {"num": 1})
        if parts[4] == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            return self.send(200, {"files": files})
        if parts[4] == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    assert line["value"]["encoding"] == "base64"
                    self.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self.send(200, {"commitUrl": f"/{name}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})
        return self.send(404, {"error": "no such address"})

    def do_GET(self):
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[0] == "api":
            name = "/".join(parts[1:4])
            if parts[4:5] == ["discussions"]:
                return self.send(200, build_pull_request("/".join(parts[2:4])))
            if name in self.repositories:
                files = [{"rfilename": path} for path in sorted(self.repositories[name])]
                return self.send(200, {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": files})
            return self.send(404, {"error": "no repository"}, {"X-Error-Code": "RepoNotFound"})
        kind = [] if parts[0] in ("datasets", "spaces") else ["models"]
        owner = [*kind, *parts]
        content = self.repositories.get("/".join(owner[:3]), {}).get("/".join(owner[5:]))
        if content is None:
            return self.send(404, {"error": "no file"}, {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha256(content).hexdigest()
        return self.send(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET

    def send(self, status, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": len(data), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def open_hub():
    """Serve for the block. Yield the address and the repositories."""
    repositories: dict[str, dict[str, bytes]] = {}
    handler = type("OwnHub", (Hub,), {"repositories": repositories})
    with serve(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", repositories
