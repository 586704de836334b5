# SPDX-License-Identifier: BSD-3-Clause
"""Issue 15, "Known answers that must come out", and their tables in docs/model.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.model.answer.answer import Answer
from nupa.model.engine.predict import predict
from nupa.model.network.text import parse as network
from nupa.model.study.figures import with_figures
from nupa.model.study.media import media
from nupa.model.work.text import parse as work
from tests.unit.model.page import PAGE, write_files

GIB = 1 << 30
DUAL = "hpn_upn(100000)"
SECTION = PAGE.read_text().split("\n## Known answers\n")[1].split("\n## ")[0]


def table(begin: str) -> list[list[str]]:
    """Returns the cells below the head of the section's table that begins so."""
    lines = SECTION[SECTION.index(f"\n{begin}") + 1 :].splitlines()
    rows = lines[2 : lines.index("")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def asked(text: str, on: str, ranks: int = 0) -> Answer:
    return predict(work(text), network(on, ranks))


def test_clussys_write_takes_1_72_us_stage_by_stage() -> None:
    """Issue 15: ib_write_lat 1.72 us."""
    found = asked("write:2", "clussys-fpga")
    rows = {stage: float(ns) for stage, ns, _ in table("| stage |")}
    assert rows.pop("sum") == pytest.approx(1720) == round(found.time_ns)
    assert rows == {stage.name: round(stage.ns) for stage in found.stages}
    assert found.high_ns == pytest.approx(2580, abs=0.5)  # the published 99th percentile
    channel = {"payload fetch", "serialisation", "switches", "write to memory"}
    dma = sum(stage.ns for stage in found.stages if stage.name in channel)
    assert dma == pytest.approx(600, rel=0.02)  # the maker's claim for the DMA channel


#: Both directions in GB/s of all links of a GPU: NVIDIA's table.
NVLINK = {"nvlink1": 160, "nvlink2": 300, "nvlink3": 600, "nvlink4": 900, "nvlink5": 1800}


def test_the_table_of_nvlink_is_nvidias() -> None:
    """Issue 15: 160 to 1,800 GB/s."""
    rows = table("| | both directions")
    assert {row[0]: float(row[1]) for row in rows} == NVLINK
    for row in rows:
        assert 2 * network(row[0]).levels[0].profile["rate"] == float(row[1]) * 1e9
        assert 2 * float(row[2]) == float(row[1])


@pytest.mark.parametrize("row", table("| | both directions"), ids=lambda row: row[0])
def test_a_ring_and_nvls_make_of_nvlink_what_the_page_says(row: list[str]) -> None:
    """Issue 15: what a ring and NVLS make of the table; measured: 235, 365 and 682 by rings."""
    fabric, _, rate, ring, share, nvls = row
    found = asked("allreduce:16G,algorithm=ring", fabric, 8)
    assert f"{found.busbw_bytes_per_s / 1e9:.1f}" == ring
    assert f"{found.busbw_bytes_per_s / 1e7 / float(rate):.0f} %" == share
    chosen = asked("allreduce:16G", fabric, 8)
    if nvls == "-":
        assert "reduce_efficiency" not in network(fabric).levels[0].profile.figures
        assert chosen.algorithm == "ring/Simple"
    else:
        assert chosen.algorithm == "nvls/Simple"
        assert f"{chosen.busbw_bytes_per_s / 1e9:.1f}" == nvls
        assert chosen.time_ns < found.time_ns


def test_ualinks_1024_accelerators_reduce_faster_in_the_switches() -> None:
    """Issue 15: UALink's 1,024 accelerators with and without in-network compute."""
    fabrics = ("ualink_pod(1024)", "ualink_pod(1024,ualink-common-2.0)")
    plain, reducing = (asked("allreduce:1G", fabric) for fabric in fabrics)
    assert plain.ranks == reducing.ranks == 1024
    assert reducing.algorithm == "ualink/Simple"
    assert 1.5 < plain.time_ns / reducing.time_ns < 2.5
    of_plain, of_reducing = (max(link.bytes for link in at.links) for at in (plain, reducing))
    assert of_plain == pytest.approx(2 * 1023 / 1024 * GIB, rel=0.001)
    # The switches reduce lines of 64 B, each with a header of 16 B.
    assert of_reducing * 64 / 80 == pytest.approx((1 + 1 / 1024) * GIB, rel=0.001)


def test_an_accelerator_is_as_fast_as_the_kernels_on_its_stations() -> None:
    """UALink leaves the number of stations to the maker: the range says so."""
    found = asked("allreduce:1G", "ualink-200g", 8)
    stations = network("ualink-200g").levels[0].profile.figures["ports"]
    kernels = 0.8  # of the port's rate
    assert found.busbw_bytes_per_s == pytest.approx(kernels * 1e11 * stations.value, rel=0.07)
    assert found.high_ns == pytest.approx(found.time_ns * stations.value / stations.low, rel=0.07)
    one = with_figures(network("ualink-200g", 8), "ualink-200g.ports=1")
    alone = predict(work("allreduce:1G"), one)
    assert alone.busbw_bytes_per_s == pytest.approx(kernels * 1e11, rel=0.01)


@pytest.mark.parametrize("row", table("| RDMA / TCP"), ids=lambda row: row[0])
def test_rdma_over_tcp_by_block_jobs_and_depth_is_that_of_the_page(row: list[str]) -> None:
    """Issue 15: RDMA = 2 x TCP on Clussys' storage cluster: for which work."""
    size, *ratios = row
    loads = ("", "numjobs=4,", "iodepth=16,", "numjobs=4,iodepth=16,")
    for ratio, load in zip(ratios, loads, strict=True):
        rdma, tcp = (storage(f"{size},rw=read,{load}", carrier) for carrier in ("rdma", "tcp"))
        assert f"{rdma.algbw_bytes_per_s / tcp.algbw_bytes_per_s:.2f}" == ratio


def storage(what: str, carrier: str) -> Answer:
    cluster = f"clients=16,servers=16,converged=true,transport={carrier}"
    return asked(f"storage:{what}{cluster}", "storage16")


def test_the_reasons_why_rdma_is_twice_tcp_are_stages() -> None:
    """Issue 15: with the reasons."""
    rdma, tcp = (storage("256K,rw=read,", carrier) for carrier in ("rdma", "tcp"))
    assert rdma.algbw_bytes_per_s / tcp.algbw_bytes_per_s == pytest.approx(2, abs=0.02)
    stages = {name: share * tcp.time_ns for name, share in tcp.shares().items()}
    of_tcp = sum(stages[name] for name in ("copies in the stack", "software"))
    waits = stages["wait: target's cores"]
    assert of_tcp + waits == pytest.approx(tcp.time_ns - rdma.time_ns, rel=0.03)


def test_a_step_of_100_000_gpus_is_faster_on_two_networks_than_on_one(tmp_path: Path) -> None:
    """Issue 15: HPN + UPN against one flat network."""
    write_files(PAGE.read_text(), tmp_path)
    flat = "fat_tree(100352,roce-400,radix=128)"
    two, one = (asked(f"@{tmp_path}/step.toml", on) for on in (DUAL, flat))
    assert two.ranks == one.ranks == 100_352
    saved = {
        name: one.shares()[name] * one.time_ns - two.shares().get(name, 0) * two.time_ns
        for name in one.shares()
    }
    assert one.time_ns > 1.5 * two.time_ns
    # The scale-up network has nine times the rate: what tensor parallelism sends is faster.
    assert saved["tensor parallel"] > 0.9 * (one.time_ns - two.time_ns)
    assert saved["computation"] == pytest.approx(0, abs=1)


def test_optics_change_the_power_of_100_000_gpus_and_hardly_the_latency() -> None:
    """Issue 15: the power of its optics by medium; the page's numbers in words."""
    found = {each.name: each for each in media(DUAL)}
    fro, cpo = found["fro"], found["cpo"]
    assert 1 - cpo.power.media_watts / fro.power.media_watts == pytest.approx(0.70, abs=0.01)
    assert 1 - cpo.power.watts / fro.power.watts == pytest.approx(0.32, abs=0.01)
    assert 1 - cpo.write_ns / fro.write_ns == pytest.approx(0.06, abs=0.01)
    assert re.search(r"70 % less power.* 32 % less\..* 6 % less time", SECTION, re.DOTALL)
