# SPDX-License-Identifier: BSD-3-Clause
"""libibverbs.so.1's functions that need no device, beside the system's, and its refusals."""

from __future__ import annotations

import ctypes
import errno
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nupa

LIBRARY = Path(nupa.__file__).parent / "lib" / "libibverbs.so.1"

# Runs in a process of its own, for two libraries of one soname do not live in one.
PROBE = r"""
import ctypes, json, random, sys, tempfile, os
lib = ctypes.CDLL(sys.argv[1])
out = {}
for name, codes in (("ibv_wc_status_str", range(-2, 30)), ("ibv_node_type_str", range(-2, 12)),
                    ("ibv_port_state_str", range(-2, 10)), ("ibv_event_type_str", range(-2, 25))):
    function = getattr(lib, name)
    function.restype = ctypes.c_char_p
    out[name] = [function(code).decode() for code in codes]
out["ibv_rate_to_mult"] = [lib.ibv_rate_to_mult(rate) for rate in range(-2, 40)]
out["ibv_rate_to_mbps"] = [lib.ibv_rate_to_mbps(rate) for rate in range(-2, 40)]
numbers = (*range(-2, 500), *out["ibv_rate_to_mbps"])
out["mult_to_ibv_rate"] = [lib.mult_to_ibv_rate(number) for number in numbers]
out["mbps_to_ibv_rate"] = [lib.mbps_to_ibv_rate(number) for number in numbers]
rng = random.Random(7)
for name, size in (("ibv_copy_ah_attr_from_kern", 32), ("ibv_copy_qp_attr_from_kern", 144),
                   ("ibv_copy_path_rec_from_kern", 64), ("ibv_copy_path_rec_to_kern", 64)):
    source = ctypes.create_string_buffer(rng.randbytes(size), size)
    target = ctypes.create_string_buffer(144)
    getattr(lib, name)(target, source)
    out[name] = target.raw.hex()
lib.ibv_get_sysfs_path.restype = ctypes.c_char_p
out["ibv_get_sysfs_path"] = lib.ibv_get_sysfs_path().decode()
with tempfile.TemporaryDirectory() as folder:
    for text in ("", "\n", "abc", "abc\n", "abcdefgh\n", "abcdefgh", "abcdefghi"):
        with open(folder + "/file", "w") as file:
            file.write(text)
        buffer = ctypes.create_string_buffer(b"########", 8)
        got = lib.ibv_read_sysfs_file(folder.encode(), b"file", buffer, ctypes.c_size_t(8))
        out["read " + repr(text)] = [got, buffer.raw[: got + 1].decode() if got > 0 else ""]
    out["read nothing"] = lib.ibv_read_sysfs_file(folder.encode(), b"none", buffer, 8)
json.dump(out, sys.stdout)
"""


#: The names that libraries before v65 do not know: IBV_EVENT_DEVICE_SPEED_CHANGE.
YOUNG = (("ibv_event_type_str", 2 + 20),)


def assert_same_answers(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Fails unless both probes are equal, but for names that an older library does not know."""
    for name, at in YOUNG:
        if theirs[name][at] == "unknown":
            ours[name][at] = "unknown"
    assert ours == theirs


def probe(library: str, python: Sequence[str] = (sys.executable,)) -> dict[str, Any]:
    """Returns the results of the helpers of *library*; skips where it cannot be loaded."""
    done = subprocess.run(
        [*python, "-c", PROBE, library], capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and "cannot open shared object" in done.stderr:
        pytest.skip("not installed: apt-get install libibverbs1")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_helpers_answer_as_the_systems_library_does() -> None:
    assert_same_answers(probe(str(LIBRARY)), probe("libibverbs.so.1"))


def test_the_helpers_know_what_programs_print() -> None:
    ours = probe(str(LIBRARY))
    assert ours["ibv_wc_status_str"][2 + 12] == "transport retry counter exceeded"
    assert ours["ibv_port_state_str"][2 + 4] == "active"
    assert ours["ibv_rate_to_mbps"][2 + 16] == 103125
    assert ours["read 'abc\\n'"] == [3, "abc\0"]
    assert ours["read nothing"] == -1


@pytest.fixture
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY), use_errno=True)


@pytest.mark.parametrize("name", ["ibv_dealloc_dmah"])
def test_a_verb_that_is_not_offered_returns_eopnotsupp(library: ctypes.CDLL, name: str) -> None:
    assert getattr(library, name)(None, None) == errno.EOPNOTSUPP


@pytest.mark.parametrize("name", ["ibv_alloc_dmah"])
def test_an_object_that_is_not_offered_is_null_with_errno(library: ctypes.CDLL, name: str) -> None:
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    ctypes.set_errno(0)
    assert function(None, None) is None
    assert ctypes.get_errno() == errno.EOPNOTSUPP


def test_a_descriptor_that_is_no_contexts_is_not_imported(library: ctypes.CDLL) -> None:
    function = library.ibv_import_device
    function.restype = ctypes.c_void_p
    for fd in (-1, 0):
        ctypes.set_errno(0)
        assert function(fd) is None
        assert ctypes.get_errno() == errno.EINVAL


def test_a_program_of_the_abi_before_2007_finds_no_device(library: ctypes.CDLL) -> None:
    dlvsym = ctypes.CDLL(None).dlvsym
    dlvsym.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(library._handle)
    address = dlvsym(handle, b"ibv_get_device_list", b"IBVERBS_1.0")
    assert address
    get_device_list = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, use_errno=True)(address)
    ctypes.set_errno(0)
    assert get_device_list(None) is None
    assert ctypes.get_errno() == errno.ENOSYS


def test_forking_needs_no_preparation(library: ctypes.CDLL) -> None:
    assert library.ibv_fork_init() == 0
    assert library.ibv_is_fork_initialized() == 2  # IBV_FORK_UNNEEDED


def test_no_fabric_means_no_device(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUPA_FABRIC", raising=False)
    library.ibv_get_device_list.restype = ctypes.c_void_p
    count = ctypes.c_int(-1)
    devices = library.ibv_get_device_list(ctypes.byref(count))
    assert devices
    assert count.value == 0
    library.ibv_free_device_list.restype = None
    library.ibv_free_device_list(ctypes.c_void_p(devices))
