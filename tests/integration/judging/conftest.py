"""Answers to judge."""

import pytest

from tests.factories.judges import make_twelve_answers


@pytest.fixture
def answered(transactional_db):
    return make_twelve_answers()


@pytest.fixture
def wave(answered):
    return answered.waves.get()
