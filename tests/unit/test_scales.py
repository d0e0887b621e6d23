import pytest

from evalsite.lib.rating_scale import RatingScale


def test_a_scale_contains_only_its_integers():
    scale = RatingScale(-3, 3)
    assert all(point in scale for point in range(-3, 4))
    assert not any(value in scale for value in (-4, 4, 1.5, "1", None))


@pytest.mark.parametrize(
    ("minimum", "maximum", "labels", "message"),
    [(7, 1, {}, "not run from 7 to 1"), (1, 1, {}, "end above its start"), (1, 7, {8: "x", 0: "y"}, r"\[0, 8\]")],
)
def test_an_invalid_scale_is_refused(minimum, maximum, labels, message):
    with pytest.raises(ValueError, match=message):
        RatingScale(minimum, maximum, labels)
