# SPDX-License-Identifier: BSD-3-Clause
"""perftest's tables, in the layout that its versions write; the numbers are made up."""

from __future__ import annotations

import pytest

from nupa.programs import perftest

RULE = "-" * 87
PREAMBLE = f"""\
{RULE}
                    RDMA_Write Latency Test
 Dual-port       : OFF\t\tDevice         : nupa_rdma0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 TX depth        : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 220[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x10001 PSN 0x4d2e1b RKey 0x001001 VAddr 0x007f6a7c0c1000
 remote address: LID 0000 QPN 0x20001 PSN 0xb0de52 RKey 0x001001 VAddr 0x007fe2d01f9000
{RULE}
"""
LATENCY = (
    PREAMBLE
    + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    + "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
    + "Conflicting CPU frequency values detected: 2600.000000 != 800.000000."
    + " CPU Frequency is not max.\n"
    + " 2       1000          0.24           9.65         0.27     \t       0.29"
    + "        \t0.04   \t\t0.41    \t\t9.65   \n"
    + " 8388608 1000          801.50         1000.25      812.75   \t       815.00"
    + "      \t12.00  \t\t999.00  \t\t1000.25\n"
    + RULE
    + "\n"
)


def bandwidth(unit: str, row: str) -> str:
    return (
        f"{PREAMBLE} #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]"
        f"   MsgRate[Mpps]\n{row}\n{RULE}\n"
    )


def test_latency_lines_are_read_by_their_headings() -> None:
    small, large = perftest.parse_latency(LATENCY)
    assert small == perftest.Latency(
        2, 1000, typical_us=0.27, min_us=0.24, mean_us=0.29, p99_us=0.41
    )
    assert (large.size_bytes, large.typical_us) == (8388608, 812.75)


@pytest.mark.parametrize(
    ("unit", "bytes_per_s"),
    [("MB/sec", 2.0**20), ("MiB/sec", 2.0**20), ("Gb/sec", 1e9 / 8)],
)
def test_bandwidth_comes_in_bytes_whatever_the_unit_of_the_version(
    unit: str, bytes_per_s: float
) -> None:
    text = bandwidth(unit, " 65536    5000             0.00               8192.50\t\t   0.131080")
    assert perftest.parse_bandwidth(text) == [
        perftest.Bandwidth(
            size_bytes=65536,
            iterations=5000,
            peak_bytes_per_s=0.0,
            mean_bytes_per_s=8192.5 * bytes_per_s,
            messages_per_s=pytest.approx(131080.0),
        )
    ]


def test_a_column_that_a_version_adds_does_not_shift_the_others() -> None:
    text = bandwidth(
        "MB/sec", " 8          100000           50.00              48.00\t\t   6.291456\t    99.10"
    ).replace("MsgRate[Mpps]", "MsgRate[Mpps]    CPU_Util[%]")
    assert perftest.parse_bandwidth(text)[0].messages_per_s == pytest.approx(6291456)


def test_no_table_is_an_error_that_shows_what_was_written() -> None:
    with pytest.raises(perftest.PerftestError, match="Unable to find the Infiniband/RoCE device"):
        perftest.parse_latency(
            " IB device nupa_rdma0 not found\n Unable to find the Infiniband/RoCE device\n"
        )


def test_a_bandwidth_table_is_not_taken_for_a_latency_table() -> None:
    text = bandwidth(
        "MB/sec", " 2          1000             4.42               1.09   \t\t     0.570447"
    )
    with pytest.raises(perftest.PerftestError, match="latency"):
        perftest.parse_latency(text)


def test_columns_that_ran_together_are_an_error_and_not_a_wrong_number() -> None:
    with pytest.raises(perftest.PerftestError, match=r"2465\.901216\.65|9 numbers"):
        perftest.parse_latency(LATENCY.replace("0.04   \t\t0.41", "2465.90"))


def test_client_and_server_differ_by_the_address_alone() -> None:
    server, client = perftest.commands("ib_write_lat", 20001, ["-s", "8"])
    assert server == ["ib_write_lat", "-F", "-p", "20001", "-s", "8"]
    assert client == [*server, "127.0.0.1"]


def test_programs_that_are_not_on_the_path_are_named() -> None:
    assert perftest.missing(["sh", "ib_no_such_test"]) == ["ib_no_such_test"]
