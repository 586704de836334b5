# SPDX-License-Identifier: BSD-3-Clause
"""fio's job file and what its JSON says; fio itself is run by tests/programs/verbs/test_fio.py."""

from __future__ import annotations

import configparser
import json
import re
from typing import Any

import pytest

from nupa.programs import fio
from nupa.programs.fio import FioError, Job

JOB = Job("tcp", block_bytes=4096, depth=32, address="10.0.0.1", ramp_s=0.6, seconds=0.4)

RATE = {
    "iops": 1000.0,
    "bw_bytes": 4096000,
    "runtime": 400,
    "lat_ns": {"mean": 2500.0},
    "clat_ns": {"percentile": {"99.000000": 9000}},
}


def output(**changes: Any) -> str:
    """Returns the output of a client: fio's notes, the JSON, and possible last lines."""
    job = {"jobname": "tcp-client", "error": 0, "write": RATE, **changes}
    text = json.dumps({"fio version": "fio-3.33", "jobs": [job]}, indent=2)
    return f"note: {{ both }} iodepth >= 1\n{text}\nfio: bye\n"


def job_file() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(allow_no_value=True, interpolation=None)
    parser.read_string(fio.JOB_FILE.read_text())
    return parser


def test_both_clients_and_both_servers_differ_by_their_engines_own_options_alone() -> None:
    sections = job_file()
    engines = {"ioengine", "verb", "protocol", "listen"}
    for role in ("client", "server"):
        rdma, tcp = (dict(sections[f"{carrier}-{role}"]) for carrier in ("rdma", "tcp"))
        assert {**rdma, **dict.fromkeys(engines)} == {**tcp, **dict.fromkeys(engines)}
    assert sections["rdma-client"]["ioengine"] == "rdma"
    assert sections["tcp-client"]["ioengine"] == "net"


def test_all_that_the_job_file_leaves_open_is_given_and_nothing_else() -> None:
    asked = set(re.findall(r"\$\{(\w+)\}", fio.JOB_FILE.read_text()))
    assert asked == set(JOB.environment())
    assert JOB.environment()["RUNTIME"] == "400ms"
    assert (JOB.environment()["BLOCK"], JOB.environment()["DEPTH"]) == ("4096", "32")


def test_each_end_runs_its_own_section() -> None:
    assert JOB.command("server")[:2] == ["fio", "--section=tcp-server"]
    assert JOB.command("client")[1:] == [
        *("--section=tcp-client", "--output-format=json", str(fio.JOB_FILE))
    ]
    assert {"tcp-server", "tcp-client", "rdma-server", "rdma-client"} < set(job_file())


def test_a_rate_is_read_from_between_what_else_fio_says() -> None:
    rate = fio.parse(output())
    assert (rate.operations_per_s, rate.bytes_per_s) == (1000.0, 4096000.0)
    assert (rate.mean_us, rate.p99_us, rate.seconds) == (2.5, 9.0, 0.4)
    assert fio.parse(output().partition("\n")[2]) == rate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"JSON with jobs was expected, fio wrote:\n  \| \(nothing\)"),
        ("fio: connect: refused\n", r"(?s)expected.*connect: refused"),
        ('{\n"jobs": []}', "JSON with one job was expected"),
        ('{\n"jobs": [7]}', "has int where its job should be"),
        ("[\n{\n", "JSON with jobs was expected"),
        (output(error=32), "tcp-client ended with error 32"),
        (output(write={}), "has no 'iops' of writes: fio 3 is needed"),
        (output(write={"iops": "many"}), "of writes"),
        (output(write=None), "of writes"),
        (output().replace("1000.0", "0.0"), "had no writes during"),
    ],
)
def test_what_is_no_measurement_is_refused_with_what_it_is(text: str, said: str) -> None:
    with pytest.raises(FioError, match=said):
        fio.parse(text)
