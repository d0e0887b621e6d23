import pytest

from evalsite.lib.stats.scale import Scale


def test_a_scale_holds_its_integers_only():
    scale = Scale(-3, 3)
    assert all(point in scale for point in range(-3, 4))
    assert not any(value in scale for value in (-4, 4, 1.5, "1", None))


@pytest.mark.parametrize(
    ("minimum", "maximum", "labels", "message"),
    [(7, 1, {}, "not from 7 to 1"), (1, 1, {}, "upwards"), (1, 7, {8: "x", 0: "y"}, r"\[0, 8\]")],
)
def test_a_scale_that_makes_no_sense_is_refused(minimum, maximum, labels, message):
    with pytest.raises(ValueError, match=message):
        Scale(minimum, maximum, labels)
