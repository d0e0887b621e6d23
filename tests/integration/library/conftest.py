import pytest

from tests.factories import make_user


def make_staff(name, *roles, **fields):
    user = make_user(name, *roles, **fields)
    user.is_staff = True
    user.save()
    return user


@pytest.fixture
def curator(db):
    return make_staff("curator", "Curator")


@pytest.fixture
def researcher(db):
    return make_staff("researcher", "Researcher")


@pytest.fixture
def operator(db):
    return make_staff("operator", "Operator")


@pytest.fixture
def superuser(db):
    return make_staff("root", superuser=True)


@pytest.fixture
def as_user(client):
    """Return a function that signs a user in to the client."""

    def sign_in(user):
        client.force_login(user)
        return client

    return sign_in
