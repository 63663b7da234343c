"""Types of the numbers in nests."""

import pytest
from mithril.common import PaddingType, find_dominant_type, get_specific_types_from_value
from mithril.errors import ArgumentError


@pytest.mark.parametrize(
    ("value", "dominant", "all_types"),
    [
        (True, bool, {bool}),
        ([True, 2], int, {bool, int}),
        ((1, [2.0, [True]]), float, {bool, int, float}),
        (range(3), int, {int}),
    ],
)
def test_types(value, dominant, all_types):
    assert find_dominant_type(value) is dominant
    assert get_specific_types_from_value(value) == all_types


@pytest.mark.parametrize("bad", ["text", [None], [], {}, object(), [[1, "a"]]])
def test_bad_values(bad):
    with pytest.raises(ArgumentError):
        find_dominant_type(bad)


def test_a_deep_nest():
    value = 1
    for _ in range(10**5):
        value = [value]
    assert find_dominant_type(value) is int


def test_padding_types():
    assert (PaddingType.VALID, PaddingType.SAME) == (0, 1)
