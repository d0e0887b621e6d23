# mypy: ignore-errors
"""Write the exports of this folder's tests with Label Studio 1.23.2, which must run on loopback.

    label-studio start --init --no-browser -p 8131 --username lab@example.org --password ... --user-token TOKEN
    python make_export.py http://127.0.0.1:8131 TOKEN FOLDER

One project rates answers of models, the other one rates texts. Addresses of people are removed.
"""

import json
import sys
import urllib.request
from pathlib import Path

RATE = '<View><Text name="text" value="$%s"/><Rating name="quality" toName="text" maxRating="5"/>%s</View>'
KIND = '<Choices name="kind" toName="text"><Choice value="polite"/><Choice value="rude"/></Choices>'


def call(base, token, method, path, body=None):
    request = urllib.request.Request(  # noqa: S310 (loopback)
        base + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Token {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        content = reply.read()
    return json.loads(content) if content else None


def result(name, kind, value):
    return {"from_name": name, "to_name": "text", "type": kind, "value": value}


def annotate(base, token, task, stars, *, kind=None, **fields):
    results = [result("quality", "rating", {"rating": stars})]
    results += [result("kind", "choices", {"choices": [kind]})] if kind else []
    call(base, token, "POST", f"/api/tasks/{task}/annotations/", {"result": results, "lead_time": 4.5, **fields})


def export(base, token, project, path):
    tasks = call(base, token, "GET", f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true")
    for task in tasks:
        for annotation in task["annotations"]:
            if isinstance(annotation.get("completed_by"), dict):
                annotation["completed_by"] = {"id": annotation["completed_by"]["id"]}
    path.write_text(json.dumps(tasks, indent=1) + "\n")


def main(base, token, folder):
    answers = call(
        base, token, "POST", "/api/projects/", {"title": "answers", "label_config": RATE % ("response", KIND)}
    )
    rows = [
        {"data": {"prompt": "Why is the sky blue?", "response": "Scattering.", "model": "vendor/small"}},
        {"data": {"prompt": "Why is the sky blue?", "response": "Ask a physicist!", "model": "vendor/large"}},
    ]
    call(base, token, "POST", f"/api/projects/{answers['id']}/import", rows)
    texts = call(base, token, "POST", "/api/projects/", {"title": "texts", "label_config": RATE % ("text", "")})
    rows = [{"data": {"text": text}} for text in ("A calm lake.", "A loud street.", "A red door.")]
    call(base, token, "POST", f"/api/projects/{texts['id']}/import", rows)
    for project, marks in ((answers, ((4, "polite"), (2, "rude"))), (texts, ((5, None), (1, None), (3, None)))):
        tasks = call(base, token, "GET", f"/api/tasks?project={project['id']}")["tasks"]
        for task, (stars, kind) in zip(sorted(tasks, key=lambda task: task["id"]), marks, strict=True):
            annotate(base, token, task["id"], stars, kind=kind)
            annotate(base, token, task["id"], stars, kind=kind, was_cancelled=stars == 1)
    export(base, token, answers["id"], folder / "answers.json")
    export(base, token, texts["id"], folder / "texts.json")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
