# SPDX-License-Identifier: BSD-3-Clause
"""Finds the transfers of a capture in one pass.

It takes a few µs for each record, and keeps only the transfer that the record belongs to.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from os import PathLike, fspath

from nupa.diagram.find.transfer import Transfer
from nupa.diagram.find.transfer_finder import TransferFinder
from nupa.packet.pcapng.reader import PcapngError, Reader

NEAR_MAX = 3


class Index:
    """The transfers of a file, in order of their beginnings.

    *packets*: their number in the file, from 1, as in Wireshark; *damage*: the error at which
    reading ended, None at the file's end.
    """

    def __init__(self, path: str, finder: TransferFinder, damage: PcapngError | None) -> None:
        self.path = path
        self.damage = damage
        self.packets = len(finder.owners)
        self.first_ns = finder.first_ns
        self.unassigned = finder.owners.count(0)
        self._places: array[int] = finder.owners
        self._by_place = finder.transfers
        self.transfers = sorted(finder.transfers, key=lambda found: (found.start_ns, found.place))
        for number, transfer in enumerate(self.transfers, 1):
            transfer.number = number
        self.by_id = {found.id: found for found in self.transfers if found.id}

    def owner(self, packet: int) -> Transfer | None:
        """Returns the transfer of a packet, None: it has none.  IndexError: no such packet."""
        if not 1 <= packet <= self.packets:
            raise IndexError(packet)
        place = self._places[packet - 1]
        return self._by_place[place - 1] if place else None

    def packets_of(self, transfer: Transfer) -> list[int]:
        """Returns the numbers of its packets, and of one that acknowledged it with others."""
        place = transfer.place
        found = [number for number, owner in enumerate(self._places, 1) if owner == place]
        if transfer.acknowledged_by and transfer.acknowledged_by not in found:
            found.append(transfer.acknowledged_by)
            found.sort()
        return found

    def owned_near(self, packet: int) -> list[int]:
        """Returns the nearest packets before and behind that belong to a transfer."""
        before = (n for n in range(packet - 1, 0, -1) if self._places[n - 1])
        behind = (n for n in range(packet + 1, self.packets + 1) if self._places[n - 1])
        return [n for n in (next(before, 0), next(behind, 0)) if n]

    def near(self, identifier: int) -> list[Transfer]:
        """Returns the transfers with the nearest ids."""
        known = sorted(self.by_id)
        at = bisect_left(known, identifier)
        window = known[max(at - NEAR_MAX, 0) : at + NEAR_MAX]
        nearest = sorted(window, key=lambda other: abs(other - identifier))[:NEAR_MAX]
        return [self.by_id[other] for other in sorted(nearest)]


def read_index(path: str | PathLike[str]) -> Index:
    """Finds the transfers of a capture file.

    Of a damaged file it finds those before the damage.  PcapngError if it cannot be opened or is
    not a pcapng or pcap file.
    """
    finder = TransferFinder()
    damage = None
    with Reader(path) as reader:
        try:
            for batch in reader.batches():
                finder.add(batch, reader.section)
        except PcapngError as error:
            if reader.section is None:
                raise
            damage = error
    finder.finish()
    return Index(fspath(path), finder, damage)
