# SPDX-License-Identifier: BSD-3-Clause
"""Memory regions: registration, and reading and writing from Python."""

import array
import errno
import gc
import mmap
import subprocess
import sys

import numpy as np
import pytest

from nupa.fabric import Fabric
from nupa.verbs import MR, PD, PyverbsError, PyverbsRDMAError, PyverbsUserError
from nupa.verbs import enums as e

LOCAL = e.IBV_ACCESS_LOCAL_WRITE


@pytest.fixture
def pd(end) -> PD:
    return end.pd


def test_new_memory_is_aligned_to_pages_and_zeroed(pd: PD) -> None:
    with MR(pd, 5000, LOCAL) as mr:
        assert mr.buf % mmap.PAGESIZE == 0
        assert mr.length == len(mr) == 5000
        assert mr.read() == bytes(5000)


def test_keys_are_not_shared(pd: PD) -> None:
    regions = [MR(pd, 64, LOCAL) for _ in range(100)]
    assert len({mr.lkey for mr in regions}) == 100
    assert len({mr.rkey for mr in regions}) == 100


def test_a_key_is_not_given_again_at_once(pd: PD) -> None:
    seen = set()
    for _ in range(100):
        with MR(pd, 64, LOCAL) as mr:
            seen.add(mr.rkey)
    assert len(seen) == 100


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(b"x" * 100),
        memoryview(bytearray(b"x" * 100)),
        array.array("B", b"x" * 100),
        np.full(100, ord("x"), np.uint8),
        mmap.mmap(-1, 100),
    ],
    ids=["bytearray", "memoryview", "array", "numpy", "mmap"],
)
def test_a_buffer_is_registered_where_it_is(pd: PD, buffer) -> None:
    with MR(pd, buffer, LOCAL) as mr:
        assert mr.length == 100
        mr.write(b"hello")
        assert bytes(memoryview(buffer)[:5]) == b"hello"
        memoryview(buffer)[0:1] = b"J"
        assert mr.read(5) == b"Jello"


def test_the_buffer_is_kept_as_long_as_the_region(pd: PD) -> None:
    buffer = bytearray(b"kept")
    mr = MR(pd, buffer, LOCAL)
    with pytest.raises(BufferError):
        buffer.clear()
    mr.close()
    del mr
    gc.collect()
    buffer.clear()


def test_a_registered_memoryview_keeps_its_memory_and_may_be_released(pd: PD) -> None:
    data = bytearray(b"abcdefgh")
    source = memoryview(data)[2:6]
    with MR(pd, source, LOCAL) as mr:
        assert mr.length == 4
        view = mr.view
        source.release()
        mr.write("1234")
        assert (data, view.tobytes()) == (b"ab1234gh", b"1234")
        with pytest.raises(BufferError):
            data.append(0)
    assert view.tobytes() == b"1234"
    view.release()
    del view
    gc.collect()
    data.append(0)


COLLECTED = """
import gc
from nupa.cxl.media.parts import Memory
from nupa.fabric import Fabric
from nupa.verbs import MR, PD, Context
from nupa.verbs.enums import IBV_ACCESS_LOCAL_WRITE

class Node:
    pass

with Fabric(hosts=2) as fabric, Context(fabric=fabric, host=0) as ctx, PD(ctx) as pd:
    for round in range(200):
        # The collector clears older objects first: the source before its user.
        source = memoryview(bytearray(4096))
        node = Node()
        node.source = source
        node.mr = MR(pd, source, IBV_ACCESS_LOCAL_WRITE)
        node.view = node.mr.view
        node.again = MR(pd, node.view, IBV_ACCESS_LOCAL_WRITE)
        node.memory = Memory(memoryview(bytearray(4096)))
        node.itself = node
        del source, node
        gc.collect()
print("collected")
"""


def test_a_region_of_a_memoryview_can_be_collected_in_a_cycle() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", COLLECTED],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "collected\n", "")


def test_bytes_can_be_registered_for_reading_only(pd: PD) -> None:
    with MR(pd, b"constant", 0) as mr:
        assert mr.read() == b"constant"
    with pytest.raises(PyverbsUserError, match="writable unless access is for reading only"):
        MR(pd, b"constant", LOCAL)


def test_memory_with_gaps_cannot_be_registered(pd: PD) -> None:
    with pytest.raises(PyverbsUserError, match="contiguous"):
        MR(pd, np.zeros((10, 10))[:, 0], LOCAL)


def test_what_has_no_buffer_cannot_be_registered(pd: PD) -> None:
    with pytest.raises(PyverbsUserError, match="Cannot register a list"):
        MR(pd, [1, 2, 3], LOCAL)  # type: ignore[arg-type]


def test_an_address_of_the_callers_can_be_registered(pd: PD) -> None:
    memory = np.zeros(64, np.uint8)
    with MR(pd, 64, LOCAL, address=memory.ctypes.data) as mr:
        assert mr.buf == memory.ctypes.data
        mr.write(b"abc", offset=1)
    assert bytes(memory[:4]) == b"\0abc"


def test_memory_of_the_pool_can_be_registered(fabric: Fabric, pd: PD) -> None:
    with fabric.alloc(4096) as memory:
        mr = MR(pd, memory, LOCAL)
        mr.write(b"shared")
        assert memory[0:6] == b"shared"
        mr.close()


def test_a_region_needs_a_protection_domain() -> None:
    with pytest.raises(TypeError, match=r"expected nupa.verbs.pd.PD, got NoneType"):
        MR(None, 64, LOCAL)  # type: ignore[arg-type]


@pytest.mark.parametrize("access", [e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_ATOMIC])
def test_remote_writing_needs_local_writing(pd: PD, access: int) -> None:
    with pytest.raises(PyverbsRDMAError, match=r"Failed to register a MR.*local write") as caught:
        MR(pd, 64, access)
    assert caught.value.error_code == errno.EINVAL


def test_a_negative_or_absurd_length_is_refused(pd: PD) -> None:
    with pytest.raises(PyverbsUserError, match="-1 bytes"):
        MR(pd, -1, LOCAL)
    with pytest.raises(PyverbsError, match="Failed to allocate MR buffer of size"):
        MR(pd, 1 << 62, LOCAL)


def test_an_empty_region_has_nothing_to_read(pd: PD) -> None:
    with MR(pd, 0, LOCAL) as mr:
        assert mr.length == 0
        assert mr.read(0, 0) == b""
        with pytest.raises(PyverbsUserError, match="isn't allocated"):
            mr.read(1, 0)


def test_strings_are_written_as_utf_8(pd: PD) -> None:
    with MR(pd, 64, LOCAL) as mr:
        mr.write("grüße", 7)
        assert mr.read(7, 0).decode() == "grüße"


@pytest.mark.parametrize(("length", "offset"), [(65, 0), (1, 64), (64, 1), (1, -1)])
def test_reading_and_writing_stay_inside(pd: PD, length: int, offset: int) -> None:
    with MR(pd, 64, LOCAL) as mr:
        with pytest.raises(PyverbsUserError, match="Invalid offset"):
            mr.read(length, offset)
        with pytest.raises(PyverbsUserError, match="Invalid offset"):
            mr.write(b"x" * length, length, offset)
        assert mr.read() == bytes(64)


def test_writing_more_than_there_is_data_is_refused(pd: PD) -> None:
    with MR(pd, 64, LOCAL) as mr, pytest.raises(PyverbsUserError, match=r"write 9 bytes .* has 3"):
        mr.write(b"abc", 9)


def test_the_view_and_numpy_see_the_same_memory(pd: PD) -> None:
    with MR(pd, 64, LOCAL) as mr:
        mr.view[3] = 7
        seen = np.asarray(mr)
        assert (seen.shape, seen.dtype, seen[3]) == ((64,), np.uint8, 7)
        seen[4] = 8
        assert mr.read(2, 3) == bytes([7, 8])
        words = np.frombuffer(mr.view, np.uint64)
        words[7] = 0x0102030405060708
        assert mr.read(1, 56) == b"\x08"


def test_a_view_outlives_its_region(pd: PD) -> None:
    mr = MR(pd, 64, LOCAL)
    mr.write(b"stays")
    view = mr.view
    mr.close()
    gc.collect()
    assert bytes(view[:5]) == b"stays"


def test_a_closed_region_says_that_it_is_closed(pd: PD) -> None:
    mr = MR(pd, 64, LOCAL)
    mr.close()
    mr.close()
    assert mr.buf == 0
    for use in (lambda: mr.lkey, lambda: mr.view, lambda: mr.sge()):
        with pytest.raises(PyverbsUserError, match="MR is closed"):
            use()
    with pytest.raises(PyverbsUserError, match="isn't allocated"):
        mr.read(1, 0)


def test_an_element_covers_the_rest_of_the_region_unless_told(pd: PD) -> None:
    with MR(pd, 64, LOCAL) as mr:
        assert (mr.sge(16).addr, mr.sge(16).length) == (mr.buf + 16, 48)
        assert (mr.sge(16, 4).length, mr.sge().lkey) == (4, mr.lkey)


def test_a_region_prints_its_keys(pd: PD) -> None:
    with MR(pd, 64, LOCAL) as mr:
        assert f"lkey                  : {mr.lkey}" in str(mr)
