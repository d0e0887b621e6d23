"""Pages are compressed for browsers that accept it; downloads and images are sent as they are."""

import gzip
import re

import pytest
from django.urls import reverse

from grading_app.grading.scoring import grade
from tests import factories

pytestmark = pytest.mark.django_db
ACCEPTS = {"headers": {"accept-encoding": "gzip, deflate, br"}}
TOKEN = re.compile(rb'name="csrfmiddlewaretoken" value="\w+"|"x-csrftoken": "\w+"', re.IGNORECASE)


@pytest.fixture
def experiment(client):
    created = factories.make_experiment(samples=2, scorers=["exact_match"])
    (run,) = factories.make_runs(created, status="done")
    factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(created, by="test")
    client.force_login(created.owner)
    return created


def remove_tokens(content):
    return TOKEN.sub(b"", content)


@pytest.mark.parametrize("name", ["experiment_detail", "experiment_results", "experiment_matrix"])
def test_a_page_is_compressed_to_a_fraction_and_says_the_same(client, experiment, name):
    address = reverse(name, args=["pilot"])
    plain, packed = client.get(address), client.get(address, **ACCEPTS)
    assert not plain.has_header("Content-Encoding")
    assert packed["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed["Vary"]
    assert int(packed["Content-Length"]) == len(packed.content) < len(plain.content) / 3
    assert remove_tokens(gzip.decompress(packed.content)) == remove_tokens(plain.content)


def test_the_length_of_a_page_varies_so_that_it_reveals_no_guess(client, experiment):
    address = reverse("experiment_results", args=["pilot"])
    lengths = {len(client.get(address, **ACCEPTS).content) for _ in range(12)}
    assert len(lengths) > 3


def test_a_part_for_htmx_is_compressed(client, experiment):
    packed = client.get(reverse("trial_list"), headers={"hx-request": "true", **ACCEPTS["headers"]})
    assert packed["Content-Encoding"] == "gzip"
    assert b"item-1" in gzip.decompress(packed.content)


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet"])
def test_a_download_is_streamed_without_compression(client, experiment, file_format):
    address = reverse("experiment_export", args=["pilot", "trials", file_format])
    packed, plain = client.get(address, **ACCEPTS), client.get(address)
    assert packed.streaming
    assert not packed.has_header("Content-Encoding")
    if file_format != "parquet":  # Its footer names the time.
        assert packed.getvalue() == plain.getvalue()


def test_a_figure_is_compressed_as_svg_and_not_as_pdf(client, experiment):
    files = {"svg": True, "pdf": False, "png": False}
    for file_format, is_packed in files.items():
        answer = client.get(reverse("figure_file", args=["pilot", "accuracy", file_format]), **ACCEPTS)
        assert answer.status_code == 200
        assert answer.has_header("Content-Encoding") == is_packed
