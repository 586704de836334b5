# SPDX-License-Identifier: BSD-3-Clause
"""Windows of several processes: atomics lose nothing, C uses a pointer, what is taken away is ones
to who loads at that moment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cffi import FFI

from nupa._engine import ffi
from nupa.fabric import Fabric
from nupa.memory import atomic_compare_swap, atomic_fetch_add, atomic_load
from tests.cross.peers.node import WAIT_S

ADDS, THREADS = 2000, 2
BEFORE = """
import sys, threading
from nupa.fabric import Fabric
from nupa.memory import atomic_compare_swap, atomic_fetch_add, atomic_load
fabric = Fabric.open(sys.argv[1])
window = fabric.host(sys.argv[2]).map(fabric.pool.find("shared"))
def say(word):
    print(word, flush=True)
    sys.stdin.readline()
"""
COUNTS = """
def count():
    for _ in range(int(sys.argv[3])):
        atomic_fetch_add(window, 0, 1)
        seen = atomic_load(window, 8)
        while (was := atomic_compare_swap(window, 8, seen, seen + 1)) != seen:
            seen = was
threads = [threading.Thread(target=count) for _ in range(int(sys.argv[4]))]
say("ready")
for thread in threads: thread.start()
for thread in threads: thread.join()
say("done")
"""
LOADS = """
words = memoryview(window).cast("B").cast("Q")
ours, ones = 0x1111111111111111, 2**64 - 1
assert set(words) == {ours}
say("ready")
while True:
    found = set(words)
    assert found <= {ours, ones}, found
    if ours not in found: break
assert window.revoked
say("done")
"""


@contextmanager
def program(lines: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", BEFORE + lines, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def await_word(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_atomics_of_threads_of_two_processes_lose_nothing(fabric: Fabric) -> None:
    with (
        fabric.pool.alloc(4096, "shared", share=["host1"]) as region,
        fabric.host(0).map(region) as window,
        ExitStack() as stack,
    ):
        others = [
            stack.enter_context(program(COUNTS, fabric.name, host, ADDS, THREADS))
            for host in ("host0", "host1")
        ]
        for sign in ("ready", "done"):
            for other in others:
                await_word(other, sign)
            if sign == "ready":
                for other in others:
                    go_on(other)
        assert atomic_load(window, 0) == 2 * THREADS * ADDS
        assert atomic_load(window, 8) == 2 * THREADS * ADDS
        # In the same order as C's own.
        words = ffi.cast("uint64_t *", window.pointer)
        assert atomic_fetch_add(window, 0, 1) == words[0] - 1
        assert atomic_compare_swap(window, 8, words[1], 7) == 2 * THREADS * ADDS
        assert words[1] == 7
        for other in others:
            go_on(other)
            assert other.wait(WAIT_S) == 0


def test_who_loads_sees_the_data_then_ones_and_never_what_comes_after(fabric: Fabric) -> None:
    region = fabric.pool.alloc(1 << 20, "shared", share=["host1"])
    before = region.pieces
    with fabric.host(0).map(region) as window:
        window.memory[:] = b"\x11" * len(window)
        with program(LOADS, fabric.name, "host1") as other:
            await_word(other, "ready")
            go_on(other)
            region.free(force=True)
            with fabric.pool.alloc(1 << 20) as after, fabric.host(0).map(after) as later:
                assert after.pieces == before  # the same memory
                later.memory[:] = b"\x22" * len(later)
                await_word(other, "done")
                assert later.memory == b"\x22" * len(later)
            go_on(other)
            assert other.wait(WAIT_S) == 0


IN_C = """
#include <stdatomic.h>
#include <stdint.h>
uint64_t sum_and_count(_Atomic uint64_t *words, uint64_t n)
{
	uint64_t sum = 0;
	for (uint64_t i = 1; i < n; i++)
		sum += words[i];
	atomic_fetch_add(&words[0], 1);
	return sum;
}
"""


def test_a_c_program_uses_the_pointer(fabric: Fabric, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler: apt-get install gcc")
    library = tmp_path / "in_c.so"
    argv = [compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library]
    subprocess.run(argv, input=IN_C, text=True, check=True, timeout=WAIT_S)
    c = FFI()
    c.cdef("uint64_t sum_and_count(void *words, uint64_t n);")
    with (
        fabric.pool.alloc(4096, "shared") as region,
        fabric.host(0).map(region) as window,
    ):
        window.array("u8")[1:101] = range(100)
        address = c.cast("void *", window.address)
        assert c.dlopen(str(library)).sum_and_count(address, 512) == 4950
        assert atomic_load(window, 0) == 1


LOSES = """
assert window[0:4] == b"data"
say("ready")
assert window[0:4] == b"\\xff" * 4 and window.revoked
window[0:4] = b"lost"
say("done")
"""


def test_a_port_command_returns_when_a_process_s_window_is_ones(
    fabric: Fabric, environment: dict[str, str]
) -> None:
    def nupa_port(state: str) -> None:
        command = [sys.executable, "-P", "-m", "nupa.cli", "port", "host1", state]
        subprocess.run(
            [*command, "--fabric", fabric.name], env=environment, check=True, timeout=WAIT_S
        )

    with (
        fabric.pool.alloc(4096, "shared", share=["host1"]) as region,
        fabric.host(0).map(region) as window,
    ):
        window[0:4] = b"data"
        with program(LOSES, fabric.name, "host1") as other:
            await_word(other, "ready")
            nupa_port("down")
            go_on(other)
            await_word(other, "done")
            assert window[0:4] == b"data"
            nupa_port("up")
            go_on(other)
            assert other.wait(WAIT_S) == 0
        with fabric.host(1).map(region) as again:
            assert again[0:4] == b"data"
