# SPDX-License-Identifier: MIT OR Apache-2.0
"""A replacement policy written in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Policy(ABC):
    """The base of a policy for :func:`larder.hits`: pass the class as ``replacement``.

    A cache has ``slots`` slots, numbered from 0, and each holds one unit. The policy keeps its own state per slot and chooses
    the slot to evict. The methods are those of the engine's own policies. An exception of a method ends the replay and is
    raised by ``hits``.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots

    @abstractmethod
    def inserted(self, slot: int, unit: int) -> None:
        """The unit was admitted into the slot."""

    @abstractmethod
    def accessed(self, slot: int) -> None:
        """The slot's unit was read or written."""

    @abstractmethod
    def removed(self, slot: int) -> None:
        """The slot's unit was evicted."""

    @abstractmethod
    def victim(self, incoming: int) -> int | None:
        """The slot to evict so that the unit ``incoming`` can be admitted; None to reject that unit.

        Called only when all slots are in use.
        """
