"""What is kept by key: the values that were used last."""

import pytest
from mithril.base.recently_used import RecentlyUsed


def test_what_was_used_longest_ago_goes():
    kept, made = RecentlyUsed(2), []

    def value(key):
        return kept.get_or_make(key, lambda: made.append(key) or key.upper())

    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == list("abcb")  # "b" went for "c", for "a" was used since
    assert kept.values() == ["A", "B"]


def test_the_first_of_two_that_are_made_at_once_stays():
    kept = RecentlyUsed(4)
    inner = []

    def make():
        inner.append(kept.get_or_make("a", lambda: "first"))
        return "second"

    assert kept.get_or_make("a", make) == "first" == inner[0]


def test_what_cannot_be_made_leaves_nothing():
    kept = RecentlyUsed(1)
    with pytest.raises(ZeroDivisionError):
        kept.get_or_make("a", lambda: 1 // 0)
    assert len(kept) == 0
