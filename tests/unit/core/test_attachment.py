# SPDX-License-Identifier: BSD-3-Clause
"""nupa.core.attachment: the host that a process is attached to, and the errors of attaching."""

from __future__ import annotations

import errno

import pytest

from nupa._engine import lib
from nupa.core.attachment import attach
from nupa.core.mover import Mover
from nupa.fabric import Fabric, FabricError, LocalError
from nupa.topology.topology import star
from nupa.verbs import Context, PyverbsRDMAError


@pytest.mark.parametrize("how", ["number", "name", "element", "digits"])
def test_a_host_is_meant_by_number_name_or_element(fabric: Fabric, how: str) -> None:
    host = {"number": 1, "name": "host1", "element": fabric.hosts[1], "digits": "1"}[how]
    context = attach(fabric, host)
    try:
        assert lib.nupa_context_host(context) == 1
        assert [process.host for process in fabric.processes()] == [1]
    finally:
        lib.nupa_close_device(context)
    assert fabric.processes() == []


def test_no_host_that_is_there_is_the_callers_fault(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match=r"no host 'host7'.*host0, host1") as caught:
        attach(fabric, "host7")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(LocalError, match="no host -1"):
        attach(fabric, -1)


def test_a_closed_fabric_is_the_callers_fault() -> None:
    with Fabric(hosts=2) as fabric:
        pass
    with pytest.raises(LocalError, match="closed"):
        attach(fabric, None)


def test_a_mover_of_its_own_is_an_attachment_of_its_own(fabric: Fabric) -> None:
    movers = [None, Mover.RELAY, Mover.RELAY]
    contexts = [attach(fabric, 0, mover) for mover in movers]
    first, second, third = (lib.nupa_context_slot(context) for context in contexts)
    for context in contexts:
        lib.nupa_close_device(context)
    assert first != second == third


def test_a_fabric_without_a_free_slot_is_the_fabrics_fault() -> None:
    topology = star(2)
    topology.segment = topology.segment._replace(slots=2)  # of which slot 0 is not used
    with Fabric(topology=topology) as fabric:
        context = attach(fabric, 0)
        try:
            with pytest.raises(FabricError, match=r"on host1: all 1 attachments.*more slots") as e:
                attach(fabric, 1)
            assert e.value.errno == errno.EUSERS
            # Users of pyverbs catch its one exception.
            with pytest.raises(PyverbsRDMAError, match="all 1 attachments") as refused:
                Context(fabric=fabric, host=1)
            assert refused.value.error_code == errno.EUSERS
        finally:
            lib.nupa_close_device(context)
