# SPDX-License-Identifier: BSD-3-Clause
"""DMTF's Redfish Protocol Validator: nothing fails, and what it does not test has a reason."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from ..lab import Lab
from .served import PASSWORD, USER, RedfishLab, served

#: Assertions that the validator does not test here, by their beginnings, and why.
SKIPPED = {
    "PROTO_REDIRECT_": "the service never redirects",
    "REQ_DATA_MOD_ERRORS": "no request of the validator fails after it was found good",
    "REQ_HEADERS_ACCEPT": "of openapi.yaml, which the service lacks; it is optional",
    "REQ_QUERY_INVALID_VALUES": "the service declares no query parameters",
    "RESP_HEADERS_CONTENT_TYPE": "of openapi.yaml, as above",
    "RESP_STATUS_INTERNAL_SERVER_ERROR": "no request makes the service fail",
    "SERV_SSDP_": "the service does not announce itself; the test sends no multicast",
    "SERV_SSE_": "the validator's own tests of streams are switched off in 1.3.2",
    "SEC_SESSION_TERMINATION_SIDE_EFFECTS": "as above: it needs a stream",
    "SEC_DEFAULT_CERT_REPLACE": "certificates are files of the command line, not resources",
    "SEC_PWD_CHANGE_REQ_": "accounts have no PasswordChangeRequired, which is optional",
}
#: Its two tests of a token's randomness warn where p < 0.01: of two random tokens in a hundred.
_BAD = {"RESP_HEADERS_X_AUTH_TOKEN": ("FAIL",)}
# Discovery by SSDP would send multicasts to the network of this machine.
_RUN = """
from redfish_protocol_validator import console_scripts, utils
utils.discover_ssdp = lambda *_, **__: {}
console_scripts.main()
"""


@pytest.fixture
def redfish(fabric: Lab):
    with served(fabric) as made:
        yield made


def test_the_protocol_validator_finds_no_failure(redfish: RedfishLab, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    options = ["-r", redfish.url, "-u", USER, "-p", PASSWORD, "--report-dir", str(reports)]
    command = [
        sys.executable,
        "-c",
        _RUN,
        *options,
        "--avoid-http-redirect",
        "--report-type",
        "tsv",
    ]
    outcome = redfish.run(command)
    (report,) = reports.glob("*.tsv")
    with report.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    failed = [row for row in rows if row["Result"] in _BAD.get(row["Assertion"], ("FAIL", "WARN"))]
    assert failed == [], outcome.describe()
    assert sum(row["Result"] == "PASS" for row in rows) > 300
    skipped = {row["Assertion"] for row in rows if row["Result"] == "NOT_TESTED"}
    unexplained = {each for each in skipped if not each.startswith(tuple(SKIPPED))}
    assert unexplained == set(), "the table of this test has no reason for them"
    assert all(any(each.startswith(start) for each in skipped) for start in SKIPPED)
