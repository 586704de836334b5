# SPDX-License-Identifier: BSD-3-Clause
"""Registrations of dma-bufs that are refused.  Those that succeed are in udmabuf.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nupa.verbs import PyverbsRDMAError
from nupa.verbs import enums as e
from nupa.verbs.device.dmabuf import DmaBuf
from nupa.verbs.mr import DmaBufMR
from tests.unit.verbs.memory.udmabuf import LOCAL, PAGE, SIZE, refusal


def test_a_descriptor_that_is_not_open_is_refused(end) -> None:
    fd = os.dup(0)
    os.close(fd)
    assert refusal(end, fd) == errno.EBADF
    assert refusal(end, -1) == errno.EBADF


def test_a_file_that_is_no_dmabuf_is_refused(end) -> None:
    memfd = os.memfd_create("exp_name:")
    os.ftruncate(memfd, SIZE)
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (memfd, reader, null):
        assert refusal(end, fd) == errno.EINVAL
    with pytest.raises(PyverbsRDMAError, match="Failed to register a dma-buf MR") as caught:
        DmaBufMR(end.pd, PAGE, LOCAL, memfd)
    assert caught.value.error_code == errno.EINVAL
    for fd in (memfd, reader, writer, null):
        os.close(fd)


MALFORMED = {
    "no bytes": {"length": 0},
    "beyond the last address": {"offset": (1 << 64) - PAGE, "length": PAGE},
    "beyond the last iova": {"iova": (1 << 64) - PAGE, "length": PAGE + 1},
    "another place in the page": {"offset": 8, "iova": 16},
    "remote write without local write": {"access": e.IBV_ACCESS_REMOTE_WRITE},
    "remote atomic without local write": {"access": e.IBV_ACCESS_REMOTE_ATOMIC},
    "windows": {"access": LOCAL | e.IBV_ACCESS_MW_BIND},
    "from zero": {"access": LOCAL | e.IBV_ACCESS_ZERO_BASED},
    "on demand": {"access": LOCAL | e.IBV_ACCESS_ON_DEMAND},
}


@pytest.mark.parametrize("options", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_registration_is_refused_whatever_the_file_is(end, options) -> None:
    assert refusal(end, -1, **options) == errno.EINVAL


def test_a_system_without_udmabuf_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr("nupa.verbs.device.dmabuf._DEVICE", "/dev/null/udmabuf")
    with pytest.raises(PyverbsRDMAError, match="load the module udmabuf") as caught:
        DmaBuf(PAGE)
    assert caught.value.error_code == errno.ENOTDIR
    assert len([*Path("/proc/self/fd").iterdir()]) == before
