# SPDX-License-Identifier: BSD-3-Clause
"""ib_{write,read,send,atomic}_{bw,lat} of perftest, with the options of its users.

perftest fills its buffers with random numbers first (64 MiB take seconds), so large sizes are few.
Its measurements are ignored: these are not benchmarks, and its clock is a quick one.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.programs.stage import Stage, sizes_of

pytestmark = pytest.mark.timeout(120)  # -a takes half of it where others compute, too

MIB = 1 << 20
ALL_SIZES = [1 << power for power in range(1, 24)]  # perftest(1), -a
UD_SIZES = [1 << power for power in range(1, 13)]  # up to the MTU
ONE_SIDED_AND_SEND = ["write", "read", "send"]
BANDWIDTH = ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"]
LATENCY = ["ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"]


@pytest.fixture
def stage(stage: Stage, quick_clock: str) -> Stage:
    return replace(stage, preload=quick_clock)


@pytest.fixture
def by_user(by_user: Stage, quick_clock: str) -> Stage:
    return replace(by_user, preload=quick_clock)


def measured(stage: Stage, program: str, *options: str) -> list[int]:
    """Runs the pair to its end: the sizes that the client has a line of results for."""
    result = stage.run_pair([program, "-F", *options], deadline_s=100)
    return sizes_of(result.client.stdout)


@pytest.mark.parametrize("program", BANDWIDTH + LATENCY)
def test_it_works_for_everybody_everywhere(everywhere: Stage, program: str) -> None:
    assert measured(everywhere, program, "-n", "100") in ([65536], [2], [8])


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
def test_bandwidth_of_all_sizes(moved: Stage, verb: str) -> None:
    assert measured(moved, f"ib_{verb}_bw", "-a", "-n", "5") == ALL_SIZES


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
def test_latency_of_all_sizes(moved: Stage, verb: str) -> None:
    assert measured(moved, f"ib_{verb}_lat", "-a", "-n", "5") == ALL_SIZES


def test_datagrams_of_all_sizes_up_to_the_mtu(moved: Stage) -> None:
    assert measured(moved, "ib_send_lat", "-c", "UD", "-a", "-n", "20") == UD_SIZES


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
@pytest.mark.parametrize(("kind", "size"), [("bw", 4097), ("lat", 1)])
def test_sizes_that_are_no_power_of_two(moved: Stage, verb: str, kind: str, size: int) -> None:
    options = "-s", str(size), "-n", "200"
    assert measured(moved, f"ib_{verb}_{kind}", *options) == [size]


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
def test_messages_of_64_mib(moved: Stage, verb: str) -> None:
    options = "-s", str(64 * MIB), "-n", "5"
    assert measured(moved, f"ib_{verb}_bw", *options) == [64 * MIB]


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
def test_latency_of_64_mib(stage: Stage, verb: str) -> None:
    options = "-s", str(64 * MIB), "-n", "5"
    assert measured(stage, f"ib_{verb}_lat", *options) == [64 * MIB]


@pytest.mark.parametrize("program", BANDWIDTH)
def test_both_directions_at_once(moved: Stage, program: str) -> None:
    assert len(measured(moved, program, "-b", "-n", "1000")) == 1


# perftest has no events for WRITE: it says so and ends.
@pytest.mark.parametrize(
    "program",
    ["ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"],
)
def test_sleeping_on_events(moved: Stage, program: str) -> None:
    assert len(measured(moved, program, "-e", "-n", "500")) == 1


@pytest.mark.parametrize("program", BANDWIDTH)
def test_eight_queue_pairs(moved: Stage, program: str) -> None:
    assert len(measured(moved, program, "-q", "8", "-n", "500")) == 1


# After an event ib_send_bw 4.5 polls its receives once, and then waits for the next event.  It
# polls for as many as a queue pair has iterations, 512 at most.  With eight queue pairs more may be
# there than it takes, and no event to come, on any device.  So it has one queue pair here.
@pytest.mark.parametrize(
    ("program", "queue_pairs"), [("ib_read_bw", 8), ("ib_send_bw", 1), ("ib_atomic_bw", 8)]
)
def test_both_directions_on_events(moved: Stage, program: str, queue_pairs: int) -> None:
    args = ["-q", str(queue_pairs), "-b", "-e", "-n", "200"]
    assert len(measured(moved, program, *args)) == 1


@pytest.mark.parametrize(
    ("program", "size"),
    [("ib_write_bw", 65536), ("ib_write_lat", 8), ("ib_send_bw", 8), ("ib_send_lat", 65536)],
)
def test_unreliable_connections(moved: Stage, program: str, size: int) -> None:
    assert measured(moved, program, "-c", "UC", "-s", str(size), "-n", "200") == [size]


@pytest.mark.parametrize("program", ["ib_send_bw", "ib_send_lat"])
@pytest.mark.parametrize("size", [1, 4096])
def test_datagrams(moved: Stage, program: str, size: int) -> None:
    assert measured(moved, program, "-c", "UD", "-s", str(size), "-n", "200") == [size]


@pytest.mark.parametrize("connection", ["UC", "UD"])
def test_unreliable_sends_that_fill_the_channel_while_the_sender_sleeps(
    moved: Stage, connection: str
) -> None:
    options = "-c", connection, "-s", "2048", "-n", "20000", "-e"
    assert measured(moved, "ib_send_bw", *options) == [2048]


@pytest.mark.parametrize("options", [("-b",), ("-q", "8"), ("-e", "-q", "8")])
def test_unreliable_sends_over_several_queue_pairs(moved: Stage, options: tuple[str, ...]) -> None:
    connection = "-c", "UD", "-s", "2048", "-n", "1000"
    assert measured(moved, "ib_send_bw", *connection, *options) == [2048]


@pytest.mark.parametrize("options", [(), ("-e",), ("-q", "8"), ("-b", "-q", "8")])
def test_a_shared_receive_queue(moved: Stage, options: tuple[str, ...]) -> None:
    assert measured(moved, "ib_send_bw", "--use-srq", "-n", "1000", *options) == [65536]


def test_latency_over_a_shared_receive_queue(moved: Stage) -> None:
    assert measured(moved, "ib_send_lat", "--use-srq", "-s", "64", "-n", "1000") == [64]


@pytest.mark.parametrize("kind", ["bw", "lat"])
@pytest.mark.parametrize("operation", ["CMP_AND_SWAP", "FETCH_AND_ADD"])
def test_both_atomic_operations(moved: Stage, kind: str, operation: str) -> None:
    assert measured(moved, f"ib_atomic_{kind}", "-A", operation, "-n", "500") == [8]


@pytest.mark.parametrize("verb", ONE_SIDED_AND_SEND)
def test_lists_of_work_requests(moved: Stage, verb: str) -> None:
    assert measured(moved, f"ib_{verb}_bw", "-l", "8", "-s", "64", "-n", "1000") == [64]


@pytest.mark.parametrize(
    ("program", "size"),
    [
        ("ib_send_bw", 65536),
        ("ib_send_lat", 64),
        ("ib_write_bw", 4097),
        ("ib_read_lat", 8),
        ("ib_atomic_bw", 8),
    ],
)
def test_xrc(moved: Stage, program: str, size: int) -> None:
    options = () if "atomic" in program else ("-s", str(size))
    assert measured(moved, program, "-c", "XRC", "-n", "500", *options) == [size]


def test_several_xrc_queue_pairs_in_both_directions(moved: Stage) -> None:
    assert measured(moved, "ib_send_bw", "-c", "XRC", "-q", "4", "-b", "-n", "500") == [65536]


# perftest takes an IPv6 group, so the port's IPv6 address has to go with it: GID 0.
@pytest.mark.parametrize("options", [(), ("-M", "255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:5")])
def test_datagrams_to_a_multicast_group(moved: Stage, options: tuple[str, ...]) -> None:
    common = "-c", "UD", "-g", "-x", "0", "-s", "1024", "-n", "500"
    assert measured(moved, "ib_send_bw", *common, *options) == [1024]
