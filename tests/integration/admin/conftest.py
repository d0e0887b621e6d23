import pytest

from tests.factories import make_user


def staff(name, *roles, **fields):
    user = make_user(name, *roles, **fields)
    user.is_staff = True
    user.save()
    return user


@pytest.fixture
def curator(db):
    return staff("curator", "Curator")


@pytest.fixture
def researcher(db):
    return staff("researcher", "Researcher")


@pytest.fixture
def operator(db):
    return staff("operator", "Operator")


@pytest.fixture
def superuser(db):
    return staff("root", superuser=True)


@pytest.fixture
def as_user(client):
    """The same client, signed in as a user."""

    def sign_in(user):
        client.force_login(user)
        return client

    return sign_in
