"""With a bucket, images are stored in it, and each machine fetches what it uses into its own folder."""

import shutil
import uuid

import boto3
import pytest
from django.core.files.storage import storages
from django.test import override_settings
from moto.server import ThreadedMotoServer

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from datasets_app.models import Asset
from evalsite.lib.ops import environment, shared_files
from evalsite.lib.ops.shared_files import StorageUnavailable, fetch_all
from runs_app.engine.requests import ImageCache
from tests.factories.files import BLUE, build_archive, build_picture

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def s3_server():
    """Run an S3 server on loopback for all tests of the file, because its end takes half a second."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bucket(settings, monkeypatch, media, s3_server):
    """Return a new bucket as the bucket of the site."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    monkeypatch.setattr(shared_files, "_unavailable_until", 0.0)
    address = "http://{}:{}".format(*s3_server.get_host_and_port())
    name = f"images-{uuid.uuid4()}"  # All servers of a process share their buckets.
    variables = {
        "EVALSITE_S3_BUCKET": name,
        "EVALSITE_S3_ENDPOINT": address,
        "EVALSITE_S3_PREFIX": "lab",
        "EVALSITE_S3_REGION": "eu-central-1",
    }
    options = environment.read_bucket(variables)
    created = boto3.resource("s3", endpoint_url=address, region_name="us-east-1").Bucket(name)
    created.create()
    shared = {"BACKEND": "evalsite.lib.ops.s3_storage.Bucket", "OPTIONS": options}
    with override_settings(STORAGES={**settings.STORAGES, "shared": shared}):
        yield created


def import_images():
    files = {"one.jpg": build_picture(size=(900, 600)), "two.png": build_picture(BLUE, form="PNG")}
    create_dataset(read_items(build_archive(files)), slug="set", by="a test")
    return list(Asset.objects.order_by("format"))


def test_an_import_stores_images_and_thumbnails_in_the_bucket(bucket):
    images = import_images()
    names = {entry.key for entry in bucket.objects.all()}
    expected = {f"lab/{file.name}" for image in images for file in (image.shared_file, image.shared_thumbnail)}
    assert names == expected
    assert len(names) == 4


def test_another_machine_fetches_an_image_once(bucket, media):
    image = import_images()[0]
    data = image.file.read_bytes()
    shutil.rmtree(media)
    assert image.shared_file.fetch().read_bytes() == data
    bucket.objects.all().delete()
    assert image.shared_file.fetch().read_bytes() == data
    assert not image.shared_thumbnail.fetch().exists(), "it is neither here nor in the bucket"


def test_a_batch_of_claims_fetches_its_images_together(bucket, media):
    images = import_images()
    shutil.rmtree(media)
    cache = ImageCache()
    cache.fetch_files((image.pk, image.content_type) for image in images)
    assert all(image.file.exists() for image in images)
    assert cache.load(images[0].pk, images[0].content_type).startswith("data:image/jpeg;base64,")


def test_an_image_with_another_content_is_refused(bucket, media):
    image = import_images()[0]
    shutil.rmtree(media)
    bucket.put_object(Key=f"lab/{image.shared_file.name}", Body=b"another image")
    with pytest.raises(StorageUnavailable, match="another content"):
        image.shared_file.fetch()
    assert not image.file.exists()


def test_a_bucket_that_does_not_answer_is_asked_once_in_five_seconds(bucket, s3_server, media, monkeypatch):
    image, other = import_images()
    shutil.rmtree(media)
    s3_server.stop()
    asked = []
    monkeypatch.setattr(storages["shared"], "open", lambda name: asked.append(name) or fail())

    def fail():
        raise ConnectionError("refused")

    with pytest.raises(StorageUnavailable, match="could not be fetched from the bucket: refused"):
        image.shared_file.fetch()
    fetch_all([image.shared_file, other.shared_file])
    with pytest.raises(StorageUnavailable, match="a moment ago"):
        other.shared_file.fetch()
    assert len(asked) == 1
    s3_server.start()


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"EVALSITE_S3_REGION": "eu"}, "EVALSITE_S3_REGION: set EVALSITE_S3_BUCKET too"),
        ({"EVALSITE_S3_BUCKET": "b", "EVALSITE_S3_ENDPOINT": "minio:9000"}, "must start with https:// or http://"),
    ],
)
def test_settings_of_a_bucket_that_cannot_work_are_refused(variables, problem):
    with pytest.raises(environment.SettingError, match=problem):
        environment.read_bucket(variables)


def test_without_a_bucket_there_are_no_options():
    assert environment.read_bucket({}) == {}
