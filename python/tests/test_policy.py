# SPDX-License-Identifier: MIT OR Apache-2.0
"""A replacement policy written in Python."""

from collections import OrderedDict

import pytest

import larder


class Lru(larder.Policy):
    """The least recently used slot is evicted first."""

    def __init__(self, slots):
        super().__init__(slots)
        self.order = OrderedDict()

    def inserted(self, slot, unit):
        self.order[slot] = unit

    def accessed(self, slot):
        self.order.move_to_end(slot)

    def removed(self, slot):
        del self.order[slot]

    def victim(self, incoming):
        return next(iter(self.order))


class Fifo(Lru):
    """As LRU, but an access changes nothing."""

    def accessed(self, slot):
        pass


@pytest.mark.parametrize(("policy", "name"), [(Lru, "lru"), (Fifo, "fifo")])
@pytest.mark.parametrize("capacity", ["1%", "16MiB"])
def test_a_policy_in_python_counts_as_the_engines_own(trace, policy, name, capacity):
    found, expected = (larder.hits(trace, which, capacity=capacity) for which in (policy, name))
    assert (found.accesses, found.unique, found.misses) == (
        expected.accesses,
        expected.unique,
        expected.misses,
    )


def test_a_policy_may_reject_units(trace):
    class First(Fifo):
        def victim(self, incoming):
            return None

    found = larder.hits(trace, First, capacity="5%")
    assert found.unique < found.misses < found.accesses


def test_the_first_exception_of_a_policy_is_raised(trace):
    class Broken(Fifo):
        calls = 0

        def victim(self, incoming):
            Broken.calls += 1
            raise LookupError("no victim")

    with pytest.raises(LookupError, match="no victim"):
        larder.hits(trace, Broken)
    assert Broken.calls == 1


@pytest.mark.parametrize("slot", [-1, 16, 1 << 40, "x", 1.5, [0]])
def test_a_victim_that_is_no_slot_is_refused(trace, slot):
    class Wrong(Fifo):
        def victim(self, incoming):
            return slot

    with pytest.raises(larder.LarderError, match=r"victim\(\): got .*, accepted a slot, 0 to 15, or None"):
        larder.hits(trace, Wrong, capacity="64KiB")


def test_other_objects_are_refused(trace):
    with pytest.raises(larder.LarderError, match=r"has no method inserted\(\); accepted: larder.Policy"):
        larder.hits(trace, lambda slots: object())
    with pytest.raises(TypeError, match="abstract"):
        larder.hits(trace, larder.Policy)
    with pytest.raises(ZeroDivisionError):
        larder.hits(trace, lambda slots: 1 // 0)
    for other in (None, 5, ["lru"]):
        with pytest.raises(TypeError, match="replacement: got .*, accepted a name"):
            larder.hits(trace, other)


def test_a_policy_in_a_sweep(trace):
    rows = larder.sweep({"replacement": [Lru, "lru"]}, trace, capacity="1%").rows
    assert rows[0]["at_replacement"] == "Lru" and rows[0]["misses"] == rows[1]["misses"]
