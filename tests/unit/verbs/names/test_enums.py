# SPDX-License-Identifier: BSD-3-Clause
"""nupa.verbs.enums against the engine's header, and as pyverbs' programs use it."""

import doctest
import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from nupa.verbs import enums as e
from nupa.verbs import libibverbs_enums

HEADER = Path(__file__).parents[4] / "csrc" / "abi" / "verbs_abi_enums.h"
# Ranges and aliases of the header that are not flags of their own.
NOT_MEMBERS = {"IBV_REREG_MR_FLAGS_SUPPORTED", "IBV_ACCESS_OPTIONAL_RANGE"}


def header_enums() -> dict[str, dict[str, int]]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"enum (\w+) \{(.*?)\}", text, re.DOTALL):
        members = re.findall(r"(IBV_\w+) = ([^,]+)", body)
        found[name] = {member: eval(value, {}) for member, value in members}
    return found


@pytest.mark.parametrize(("name", "members"), header_enums().items(), ids=list(header_enums()))
def test_an_enumeration_has_the_values_of_the_header(name: str, members: dict[str, int]) -> None:
    kind = getattr(e, name)
    for member, value in members.items():
        if member in NOT_MEMBERS:
            continue
        assert getattr(e, member) == value
        assert member == "IBV_ACCESS_OPTIONAL_FIRST" or kind[member] == value
    assert set(kind.__members__) <= set(members)


def test_the_header_was_read() -> None:
    assert len(header_enums()) > 40


def test_flags_combine_and_enumerations_are_typed() -> None:
    both = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ
    assert isinstance(both, e.ibv_access_flags)
    assert issubclass(e.ibv_access_flags, IntFlag)
    assert issubclass(e.ibv_qp_type, IntEnum)
    assert both == 5


def test_the_other_name_of_the_module_has_the_same_members() -> None:
    assert libibverbs_enums.IBV_QPT_RC is e.IBV_QPT_RC
    assert libibverbs_enums.__all__ == e.__all__


def test_star_import_gives_pyverbs_private_names_too() -> None:
    assert "_IBV_ADVISE_MR_FLAG_FLUSH" in e.__all__
    assert e._IBV_DEVICE_RAW_SCATTER_FCS == 1 << 34


def test_the_examples_in_the_docstring_hold() -> None:
    assert doctest.testmod(e).failed == 0
