"""Every upload accepts any file: damaged, of a kind that differs from its extension, or of two kinds at once."""

import json
from pathlib import Path

import pytest
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.urls import reverse

from tests.factories.files import build_archive, build_picture, build_upload
from tests.integration.datasets.test_damaged_files import WHOLE
from tests.system.fuzz.pages import parse_page

pytestmark = [pytest.mark.django_db, pytest.mark.ignore_template_errors]  # Templates of Django use undefined variables.
IMPORTS = Path(__file__).parents[2] / "integration" / "study_import"
OASIS = (
    b"model,run_id,image_id,dimension,sample_idx,status,rating,attempts,cost_usd,completed_at,error,raw_response\n"
    b"small,one,Cat 1,valence,0,done,6,1,0.001,2026-04-26 18:20:19,,six\n"
    b"small,one,Wall 2,valence,0,failed,,3,,,Error: lost,\n"
)
PIECES = [
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b'"',
    b"\r",
    b"[" * 3000,
    b"9" * 5000,
    b"\\ud800",
    b"\\u0000",
    b"1e999",
    b"NaN",
    b",,,,",
    b"\x1b[2J",
    b"=1+1",
]
HANDMADE = {
    "deep.json": b"[" * 100_000,
    "deep.jsonl": b'{"id": ' + b"[" * 5000 + b"]" * 5000 + b"}\n",
    "deep_objects.json": b'[{"id": "a", "m": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}]",
    "integer.json": b'[{"id": "a", "question": ' + b"9" * 5000 + b"}]",
    "integer.jsonl": b'{"id": "a", "question": "Q", "v_mean": ' + b"9" * 5000 + b"}\n",
    "integer.csv": b"id,question,v_mean\na,Q," + b"9" * 5000 + b"\n",
    "float.csv": b"id,question,v_mean\na,Q,1e400\nb,Q,nan\nc,Q,-inf\n",
    "nul.csv": b"id,question\na,\x00\n\x00,b\n",
    "nul.jsonl": b'{"id": "a\\u0000", "question": "Q\\u0000"}\n',
    "surrogate.json": b'[{"id": "a", "question": "\\ud800"}]',
    "keys.jsonl": b'{"id": "a", "": 1, "\\u0000": 2, "x": {"\\ud800": 1}}\n',
    "constants.json": b'[{"id": "a", "question": "Q", "m": [NaN, Infinity, -Infinity, 1e999]}]',
    "scalars.json": b'[1, null, "a", [], {}]',
    "text.json": b'"text"',
    "quotes.csv": b'id,question\na,"never closed\n' + b"x," * 2000,
    "names.csv": b"id,id,id,,\n1,2,3,4,5\n",
    "wide.csv": b",".join(b"c%d" % n for n in range(3000)) + b"\n" + b"1," * 2999 + b"1\n",
    "utf16.csv": "id,question\na,Q\n".encode("utf-16"),
    "latin.csv": "id,question\na,é\n".encode("latin-1"),
    "bom.csv": b"\xef\xbb\xbf\xef\xbb\xbfid,question\na,Q\n",
    "empty.csv": b"",
    "empty.zip": b"PK\x05\x06" + b"\x00" * 18,
    "parents.zip": build_archive(
        {"../../up.csv": "id,question\na,Q\n", "/abs.csv": "id\n1\n", "a\\b.csv": "id\n1\n"}
    ).getvalue(),
    "many.zip": build_archive({f"{n}.csv": "id,question\na,Q\n" for n in range(300)}).getvalue(),
    "inner.zip": build_archive({"inner.zip": build_archive({"a.csv": "id\n1\n"}).getvalue()}).getvalue(),
    "image_of_text.zip": build_archive({"a.jpg": b"\xff\xd8\xff no picture", "b.png": b"\x89PNG\r\n\x1a\n"}).getvalue(),
    "page.csv": b"<html><script>alert(1)</script>",
    "gifar.zip": build_picture(form="GIF") + build_archive({"a.csv": "id,question\na,Q\n"}).getvalue(),
    "picture.csv": build_picture(),
    "parquet.json": WHOLE["a.parquet"],
    "table.parquet": WHOLE["a.csv"],
    "short.parquet": WHOLE["a.parquet"][:20] + b"PAR1",
    "experiment.yaml": b"name: a\nmodels: &a [*a]\n",
}
YAML = [
    b"",
    b"[]",
    b"a",
    b"\x00",
    b"\xff\xfe",
    b"name: " + b"[" * 3000,
    b"- " * 3000,
    b"? " * 300,
    b"name: &a [*a, *a]",
    b"!!python/object/apply:os.system [id]",
    b"name: " + b"9" * 5000,
    b"{" * 3000,
    b'{"name": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"name": ' + b"9" * 5000 + b"}",
    b"name: 2026-13-45",
    b"name: 0001-01-01",
    b"name: 1e400\nsamples: .inf\nmax_usd: .nan",
    b'{"name": "\\ud800"}',
    b'{"name": "\\u0000"}',
    b"name: x\n" * 2000,
    b"? [a, b]\n: c",
    b"<<: {a: 1}",
    b"%YAML 9.9\n---\na: 1",
    b"name: !!binary aGVsbG8=",
    b"name: !!set {a, b}",
    b"name: 190:20:30",
    b"name: 0x" + b"f" * 4000,
    b"2: 3",
    b"null: null",
]


def damage(content, chance):
    """Delete, insert, repeat or replace bytes at one to four places."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data) + 1)
        data[start : start + chance.choice([0, 0, 1, 3, 40])] = chance.choice(
            [*PIECES, bytes([chance.randrange(256)]), b"", data[:30]]
        )
    return bytes(data)


def generate_files(chance, count):
    yield from HANDMADE.items()
    names = sorted({**WHOLE, **HANDMADE})
    for _ in range(count):
        source = chance.choice(sorted(WHOLE))
        name = source if chance.random() < 0.7 else chance.choice(names)
        yield name, damage(WHOLE[source], chance)


def upload_file(attack, address, name, data, field, others):
    body = encode_multipart(BOUNDARY, {**others, field: build_upload(data, name)})
    return attack.post("owner", address, body, MULTIPART_CONTENT, keep=True)


def find_file_field(attack, address):
    """Return the name of the first file input of the page, and the other fields of its form."""
    form = next(form for form in parse_page(address, attack.get("owner", address).text).forms if form.files)
    return form.files[0], {name: value for name, value in form.fields if value}


def send_import(attack, address, page):
    """Send the second step with each button of the page. Return the number of created datasets."""
    forms = [form for form in parse_page(address, page).forms if form.method == "post"]
    variants = [variant for form in forms for variant in form.variants() if "discard" not in variant.names]
    created = 0
    for form in [variant for variant in variants if "column_key" in variant.names or "again" in variant.names]:
        body = encode_multipart(BOUNDARY, dict(form.fields))
        attack.post("owner", address, body, MULTIPART_CONTENT, keep=True)
        created += "/datasets/fuzzed/" in attack.get("owner", address).location
    return created


def test_no_uploaded_table_causes_a_server_error(attack, requests_wanted, chance):
    """Each file is uploaded, and the next page is opened and sent unchanged."""
    address = reverse("dataset_new")
    field, others = find_file_field(attack, address)
    others |= {"name": "fuzzed", "slug": "fuzzed", "title": "Fuzzed"}
    imported = 0
    for name, data in [*WHOLE.items(), *generate_files(chance, requests_wanted)]:
        if attack.sent >= requests_wanted // 2:
            break
        answer = upload_file(attack, address, name, data, field, others)
        if answer.location:
            page = attack.get("owner", answer.location)
            imported += send_import(attack, answer.location, page.text)
    assert imported > 3, "no file was read to its end"
    print(f"\nuploads: {attack.report()}")
    assert not attack.findings, attack.report()


def test_no_uploaded_norms_file_causes_a_server_error(attack, world, requests_wanted, chance):
    address = reverse("dataset_norms", args=[world.draft.slug, world.draft.version])
    field, others = find_file_field(attack, address)
    files = list(generate_files(chance, requests_wanted // 6))
    for name, data in chance.sample(files, min(len(files), requests_wanted // 8)):
        upload_file(attack, address, name, data, field, others)
    assert not attack.findings, attack.report()


def test_no_uploaded_design_causes_a_server_error(attack, world, requests_wanted, chance):
    address = reverse("experiment_from_file")
    field, others = find_file_field(attack, address)
    design = attack.get("owner", reverse("experiment_yaml", args=[world.experiment.slug])).text.encode()
    assert b"models" in design
    as_json = json.dumps({"name": "x", "models": ["small"]}).encode()
    for data in [
        *YAML,
        *HANDMADE.values(),
        *(damage(design, chance) for _ in range(60)),
        *(damage(as_json, chance) for _ in range(20)),
    ]:
        if attack.sent >= requests_wanted:
            break
        upload_file(attack, address, "design.yaml", data, field, others)
    assert not attack.findings, attack.report()


def test_no_uploaded_study_causes_a_server_error(attack, requests_wanted, chance):
    """Each file is uploaded, and its report is opened and sent with each button."""
    address = reverse("study_import_new")
    field, _ = find_file_field(attack, address)
    studies = {
        "trials.csv": OASIS, "trials.zip": build_archive({"pilot/trials.csv": OASIS}).getvalue(),
        "sums.eval": (IMPORTS / "logs" / "sums.eval").read_bytes(),
        "snapshot.zip": (IMPORTS / "snapshots" / "schema-5.zip").read_bytes(),
        "results.json": (IMPORTS / "promptfoo" / "results.json").read_bytes(),
        "capitals.jsonl": (IMPORTS / "openai_evals" / "capitals.jsonl").read_bytes(),
        "runs.zip": (IMPORTS / "helm" / "runs.zip").read_bytes(),
    }  # fmt: skip
    files = [*studies.items(), *chance.sample(sorted(HANDMADE.items()), 6)]
    files += [(name, damage(studies[name], chance)) for name in sorted(studies) * max(1, requests_wanted // 100)]
    imported = 0
    for name, data in files:
        slug = f"fuzzed-{name.partition('.')[0]}".replace("_", "-")  # A study of another tool needs another name.
        report = upload_file(attack, address, name, data, field, {"slug": slug}).location
        for form in parse_page(report, attack.get("owner", report).text).forms if report else []:
            for variant in (each for each in form.variants() if {"import", "again"} & set(each.names)):
                body = encode_multipart(BOUNDARY, dict(variant.fields))
                attack.post("owner", report, body, MULTIPART_CONTENT, keep=True)
                imported += "/experiments/" in attack.get("owner", report).location
    assert imported >= len(studies) - 1, "no study was imported"
    assert not attack.findings, attack.findings
