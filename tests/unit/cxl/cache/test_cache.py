# SPDX-License-Identifier: BSD-3-Clause
"""CXL.cache: its tables, type 2 devices and their host, and all of it against plain bytes."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.cache.bias import PAGE_BYTES, Bias, BiasTable
from nupa.cxl.cache.coherence import Directory, Mesi, Snoop
from nupa.cxl.cache.device_cache import DeviceCache, Reply, Write
from nupa.cxl.cache.states import (
    REQUESTS,
    SNOOPED,
    SnoopOutcome,
    TransitionError,
    may_answer,
    may_ask,
    may_respond,
)
from nupa.cxl.cache.tables import D2HReqOpcode, D2HRspOpcode, H2DReqOpcode
from nupa.cxl.device.host_agent import HostAgent
from nupa.cxl.device.type2 import Type2

STEP = 256 << 20
I, S, E, M = Mesi.I, Mesi.S, Mesi.E, Mesi.M  # noqa: E741 - their names


def device(lines: int = 1024, name: str = "type2") -> Type2:
    made = Type2(STEP, lines=lines, name=name)
    made.config["device"].write(0x0C, 2, 1 << 0 | 1 << 2)  # Cache_Enable, Mem_Enable
    return made


class Site:
    """A host with two devices, at STEP and at 2 STEP."""

    def __init__(self, lines: int = 1024) -> None:
        self.host = HostAgent(STEP)
        self.first, self.second = (device(lines, name) for name in ("first", "second"))
        self.host.attach(self.first, STEP)
        self.host.attach(self.second, 2 * STEP)

    def said(self) -> list[str]:
        """Return the messages since the last call."""
        messages = [str(message) for message in self.host.trace]
        self.host.trace.clear()
        return messages


@pytest.fixture
def site() -> Site:
    return Site()


# Tables


def test_every_request_of_the_tables_has_a_row() -> None:
    assert [row.opcode for row in REQUESTS.values()] == list(D2HReqOpcode)


def test_every_pair_of_snoop_and_state_has_answers_and_data_comes_from_m_alone() -> None:
    assert set(SNOOPED) == {(snoop, state) for snoop in H2DReqOpcode for state in Mesi}
    for (snoop, state), outcomes in SNOOPED.items():
        for outcome in outcomes:
            assert outcome.after <= state
            assert outcome.has_data == (state is M)
            assert snoop is not H2DReqOpcode.SnpInv or outcome.after is I
            assert snoop is not H2DReqOpcode.SnpData or outcome.after in (I, S)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("state", list(Mesi))
def test_a_request_in_a_state_that_does_not_allow_it_is_an_error(name: str, state: Mesi) -> None:
    allowed = {
        "RdOwn": (I, S),
        "RdOwnNoData": (I, S),
        "CleanEvict": (E,),
        "DirtyEvict": (M,),
        "CleanEvictNoData": (S, E),
    }.get(name, (I,))
    if state in allowed:
        assert may_ask(name, state).name == name
    else:
        with pytest.raises(TransitionError, match=f"{name} of a line in {state.name}"):
            may_ask(name, state)


def test_answers_that_a_request_does_not_have_are_errors() -> None:
    for row in REQUESTS.values():
        for other in REQUESTS.values():
            for answer in other.answers:
                if answer in row.answers:
                    assert may_answer(row, answer) is answer
                else:
                    with pytest.raises(TransitionError, match=f"does not answer {row.name}"):
                        may_answer(row, answer)
    with pytest.raises(TransitionError, match="no request 'RdWhat'"):
        may_ask("RdWhat", I)


def test_a_device_that_was_given_s_cannot_have_changed_the_line() -> None:
    clean, dirty = SNOOPED[H2DReqOpcode.SnpInv, S][0], SNOOPED[H2DReqOpcode.SnpInv, M][0]
    assert may_respond(H2DReqOpcode.SnpInv, S, clean) is clean
    assert may_respond(H2DReqOpcode.SnpInv, E, dirty) is dirty  # E became M without a word
    for granted, outcome in ((S, dirty), (I, clean)):
        with pytest.raises(TransitionError):
            may_respond(H2DReqOpcode.SnpInv, granted, outcome)


def test_a_host_that_answers_wrongly_is_found_out() -> None:
    wrong = REQUESTS["CLFlush"].answers[0]
    cache = DeviceCache(lambda _row, _hpa, _write: Reply(wrong), 4)
    with pytest.raises(TransitionError, match="GO with I does not answer RdOwn"):
        cache.request("RdOwn", 0)
    assert cache.state(0) is I


# Registers


def test_its_registers_are_those_of_a_type_2() -> None:
    dvsec = device().config["device"]
    assert dvsec["capability.cache"] == dvsec["capability.mem"] == 1
    assert (dvsec["capability_2.cache_size_unit"], dvsec["capability_2.cache_size"]) == (1, 1)
    assert device().config["flex_bus"]["capability.cache"] == 1
    assert device().component["bi_decoder"]["capability.hdm_d"] == 1
    assert device().config.header["class_code"] == 0x120000


def test_without_cache_enable_the_host_is_not_asked(site: Site) -> None:
    site.first.config["device"].write(0x0C, 2, 0)
    with pytest.raises(LocalError, match="Cache_Enable"):
        site.first.read(0, 4)
    assert site.said() == []


def test_writing_back_by_its_register_leaves_nothing_and_says_so(site: Site) -> None:
    site.first.write(0x40, b"host memory")
    site.first.write(STEP, b"its own")
    site.first.config["device"].write(0x10, 2, 1 << 1)
    assert site.first.cache.lines() == {}
    assert site.first.config["device"]["status_2.cache_invalid"] == 1
    assert site.host.memory.read(0x40, 11) == b"host memory"
    assert site.first.own.read(0, 7) == b"its own"
    site.first.read(0x40, 1)
    assert site.first.config["device"]["status_2.cache_invalid"] == 0


def test_a_device_that_may_not_cache_reads_and_writes_through(site: Site) -> None:
    site.host.write(0x80, b"before")
    site.first.read(0x80, 1)
    site.first.config["device"].write(0x10, 2, 1 << 0)
    site.said()
    site.first.write(0x80, b"behind")
    site.first.write(0x100, bytes(64))
    assert site.first.read(0xC0, 1) == b"\0"
    assert [name.split()[2] for name in site.said() if name.startswith("D2H Req")] == [
        "CleanEvictNoData",
        "WrInv",
        "WOWrInvF",
        "RdCurr",
    ]
    assert site.first.cache.lines() == {}
    assert site.host.read(0x80, 6) == b"behind"


# Messages


def test_lines_of_host_memory_move_by_the_messages_of_the_specification(site: Site) -> None:
    site.first.write(0x40, b"a")
    assert site.said() == [
        "D2H Req RdOwn 0x40 first",
        "H2D Rsp GO E 0x40 first",
        "H2D Data 0x40 first",
    ]
    assert site.first.cache.state(0x40) is M
    assert site.second.read(0x40, 1) == b"a"
    assert site.said() == [
        "D2H Req RdShared 0x40 second",
        "H2D Req SnpData 0x40 first",
        "D2H Rsp RspSFwdM 0x40 first",
        "D2H Data 0x40 first",
        "H2D Rsp GO S 0x40 second",
        "H2D Data 0x40 second",
    ]
    site.second.write(0x40, b"b")
    assert site.said() == [
        "D2H Req RdOwnNoData 0x40 second",
        "H2D Req SnpInv 0x40 first",
        "D2H Rsp RspIHitSE 0x40 first",
        "H2D Rsp GO E 0x40 second",
    ]
    assert site.host.read(0x40, 1) == b"b"
    assert site.said() == [
        "H2D Req SnpData 0x40 second",
        "D2H Rsp RspSFwdM 0x40 second",
        "D2H Data 0x40 second",
    ]
    assert site.host.messages["H2D Req SnpData"] == 2


def test_a_page_changes_to_the_bias_of_the_side_that_uses_it(site: Site) -> None:
    dev, host = site.first, site.host
    host.write(STEP, b"host")
    assert site.said() == [
        "M2S Req MemRd A SnpInv 0x10000000 first",
        "S2M NDR Cmp-E 0x10000000 first",
        "S2M DRS MemData 0x10000000 first",
    ]
    assert dev.read(STEP, 4) == b"host"
    assert site.said() == [
        "D2H Req RdShared 0x10000000 first",
        "M2S RwD MemWr I 0x10000000 first",
        "S2M NDR Cmp 0x10000000 first",
        "M2S Req MemRdFwd S 0x10000000 first",
    ]
    dev.flip(STEP, Bias.DEVICE)
    assert len([each for each in site.said() if "CLFlush" in each]) == PAGE_BYTES // 64
    dev.write(STEP, b"mine")
    assert dev.read(STEP, 4) == b"mine"
    assert site.said() == []  # without a request
    assert dev.bias[0] is Bias.DEVICE
    assert host.read(STEP, 4) == b"mine"  # the page is in host bias again
    assert site.said()[0] == "M2S Req MemRd S SnpData 0x10000000 first"
    assert dev.bias[0] is Bias.HOST
    assert dev.bias.flips == 2
    assert dev.cache.lines() == {}  # of the whole page
    site.said()
    dev.write(STEP, b"asks")
    assert "D2H Req RdOwn 0x10000000 first" in site.said()
    with pytest.raises(LocalError, match="no memory of first"):
        dev.flip(0, Bias.DEVICE)


def test_peers_use_each_others_memory_through_the_host(site: Site) -> None:
    site.second.write(STEP + 64, b"peer")
    assert site.first.read(STEP + 64, 4) == b"peer"
    site.first.flip(STEP, Bias.DEVICE)
    site.first.write(STEP + 64, b"home")
    assert site.second.read(STEP + 64, 4) == b"home"
    assert site.first.bias[64] is Bias.HOST


@pytest.mark.parametrize(
    "name", ["ItoMWr", "WrCur", "WOWrInv", "WOWrInvF", "WrInv", "RdCurr", "RdAny", "CLFlush"]
)
@pytest.mark.parametrize("hpa", [0x40, STEP + 0x40, 2 * STEP + 0x40])
def test_requests_as_they_are_leave_what_they_say(site: Site, name: str, hpa: int) -> None:
    """The host has changed the line before; lines of host memory, own memory and a peer's
    memory."""
    site.host.write(hpa, bytes(range(64)))
    row, new = REQUESTS[name], bytes([9] * (5 if REQUESTS[name].is_partial else 64))
    is_write = row.forward == "MemWrFwd"
    at = 3 if row.is_partial else 0
    found = site.first.request(name, hpa, new if is_write else b"", at)
    wanted = bytearray(range(64))
    if is_write:
        wanted[at : at + len(new)] = new
    else:
        assert found == (b"" if name == "CLFlush" else wanted)
    # RdAny gets E if no other cache has the line; here the host keeps S.
    assert site.first.cache.state(hpa) is (S if name == "RdAny" else I)
    assert site.second.read(hpa, 64) == site.host.read(hpa, 64) == site.first.read(hpa, 64)
    assert site.host.read(hpa, 64) == wanted


def test_evicts_of_lines_that_it_cannot_have_are_refused(site: Site) -> None:
    site.first.read(0, 1)
    with pytest.raises(TransitionError, match="CleanEvict of a line in S"):
        site.first.request("CleanEvict", 0)
    with pytest.raises(TransitionError, match="was given it in S"):
        site.host.request(site.first, REQUESTS["DirtyEvict"], 0, Write(bytes(64)))
    with pytest.raises(TransitionError, match="was given it in I"):
        site.host.request(site.second, REQUESTS["CleanEvictNoData"], 0, Write())
    site.first.request("RdOwn", 0)
    site.first.request("CleanEvict", 0)
    assert site.first.cache.state(0) is I
    site.first.read(STEP, 1)
    with pytest.raises(TransitionError, match="memory of first itself"):
        site.first.request("CleanEvictNoData", STEP)


def test_a_host_that_writes_what_the_device_has_is_refused(site: Site) -> None:
    site.first.write(STEP, b"x")
    with pytest.raises(TransitionError, match="MemWr"):
        site.first.answer("MemWr", STEP, Directory.I, Snoop.NONE, bytes(64))
    site.first.flip(STEP, Bias.DEVICE)
    with pytest.raises(TransitionError, match="device bias"):
        site.first.request("RdOwn", STEP)


def test_a_snoop_that_is_answered_wrongly_is_found_out(site: Site) -> None:
    site.first.read(0, 1)
    site.first.snoop = lambda _snoop, _hpa: (  # type: ignore[method-assign]
        SnoopOutcome(D2HRspOpcode.RspIFwdM, I, True),
        bytes(64),
    )
    with pytest.raises(TransitionError, match="RspIFwdM does not answer SnpInv of a line in S"):
        site.host.write(0, b"x")


@pytest.mark.parametrize("name", ["RdCurr", "RdOwn", "RdShared", "RdOwnNoData", "WrInv", "CLFlush"])
def test_memory_that_is_not_there_is_an_error_of_the_host(site: Site, name: str) -> None:
    with pytest.raises(RemoteError, match="no memory there"):
        site.first.request(name, 3 * STEP, b"x" if name == "WrInv" else b"")
    assert site.first.cache.lines() == {}
    with pytest.raises(LocalError, match="no memory"):
        site.host.read(3 * STEP, 1)


def test_pages_do_not_flip_while_others_have_lines() -> None:
    table = BiasTable(2 * PAGE_BYTES)
    with pytest.raises(TransitionError, match="page 1 to device bias: hosts' caches have 3 lines"):
        table.flip(PAGE_BYTES, Bias.DEVICE, 3)
    table.flip(PAGE_BYTES, Bias.DEVICE, 0)
    assert [table[0], table[2 * PAGE_BYTES - 1]] == [Bias.HOST, Bias.DEVICE]
    with pytest.raises(TransitionError, match="the device's caches"):
        table.flip(PAGE_BYTES, Bias.HOST, 1)
    with pytest.raises(LocalError):
        table.page(2 * PAGE_BYTES)


def test_devices_are_attached_once_and_apart(site: Site) -> None:
    for base in (0, STEP, STEP + 64):
        with pytest.raises(LocalError):
            site.host.attach(device(), base)
    with pytest.raises(LocalError, match="has a host"):
        site.host.attach(site.first, 4 * STEP)
    site.first.write(0, b"kept")
    site.host.write(STEP, b"too")
    site.host.detach(site.first)
    assert site.host.read(0, 4) == b"kept"
    assert site.first.own.read(0, 3) == b"too"
    with pytest.raises(LocalError, match="not attached to a host"):
        site.first.read(0, 1)
    with pytest.raises(LocalError, match="not attached"):
        site.host.detach(site.first)


def test_a_cxl_reset_writes_back_first(site: Site) -> None:
    site.first.write(0, b"kept")
    site.first.config["device"].write(0x10, 2, 1 << 2)
    assert site.host.read(0, 4) == b"kept"
    assert site.first.cache.lines() == {}


def test_devices_and_host_in_threads_count_together(site: Site) -> None:
    turns = 300

    def play(user: Type2 | HostAgent, parity: int) -> None:
        number = parity
        while number < turns:
            if int.from_bytes(user.read(STEP, 8), "little") == number:
                user.write(STEP, (number + 1).to_bytes(8, "little"))
                number += 3

    users = (site.host, site.first, site.second)
    threads = [Thread(target=play, args=(user, i)) for i, user in enumerate(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert site.host.read(STEP, 8) == turns.to_bytes(8, "little")


# Against plain bytes

SPAN = 320
BASES = st.sampled_from([0, STEP, STEP + PAGE_BYTES, 2 * STEP])
WHO = st.integers(0, 2)


class Complex(RuleBasedStateMachine):
    """A host and two devices with small caches; random accesses to all memory."""

    @initialize(lines=st.integers(1, 6))
    def start(self, lines: int) -> None:
        self.site = Site(lines)
        self.users = (self.site.host, self.site.first, self.site.second)
        self.model = {base: bytearray(SPAN) for base in (0, STEP, STEP + PAGE_BYTES, 2 * STEP)}

    @rule(who=WHO, base=BASES, at=st.integers(0, SPAN - 1), size=st.integers(1, 150))
    def read(self, who: int, base: int, at: int, size: int) -> None:
        size = min(size, SPAN - at)
        assert self.users[who].read(base + at, size) == self.model[base][at : at + size]

    @rule(who=WHO, base=BASES, at=st.integers(0, SPAN - 1), data=st.binary(min_size=1, max_size=99))
    def write(self, who: int, base: int, at: int, data: bytes) -> None:
        data = data[: SPAN - at]
        self.users[who].write(base + at, data)
        self.model[base][at : at + len(data)] = data

    @rule(
        who=st.integers(1, 2),
        base=BASES,
        line=st.integers(0, SPAN // 64 - 1),
        name=st.sampled_from([name for name in REQUESTS if name != "CacheFlushed"]),
        value=st.integers(0, 255),
    )
    def request(self, who: int, base: int, line: int, name: str, value: int) -> None:
        dev, at, row = self.users[who], 64 * line, REQUESTS[name]
        assert isinstance(dev, Type2)
        hpa, state = base + at, dev.cache.state(base + at)
        is_own = dev.is_own(hpa)
        is_illegal = state not in row.before or (
            is_own and (not row.forward or dev.bias[hpa - dev.base] is Bias.DEVICE)
        )
        size, first = (7, 5) if row.is_partial else (64, 0)
        data = bytes([value] * size) if row.forward == "MemWrFwd" else b""
        before = self.site.host.messages.total()
        if is_illegal:
            with pytest.raises(TransitionError):
                dev.request(name, hpa, data, first)
            return
        if name == "RdOwnNoData" and state is I:  # it is going to write all of it
            dev.request(name, hpa)
            self.write(who, base, at, bytes([value] * 64))
            return
        found = dev.request(name, hpa, data, first)
        assert self.site.host.messages.total() > before
        if data:
            self.model[base][at + first : at + first + size] = data
        elif found:
            assert found == self.model[base][at : at + 64]

    @rule(page=st.integers(0, 1), to=st.sampled_from(Bias))
    def flip(self, page: int, to: Bias) -> None:
        self.site.first.flip(STEP + page * PAGE_BYTES, to)
        assert self.site.first.bias[page * PAGE_BYTES] is to

    @rule(who=WHO)
    def flush(self, who: int) -> None:
        user = self.users[who]
        if isinstance(user, Type2):
            user.flush()
            assert user.cache.lines() == {}
        else:
            user.flush(0, 3 * STEP)
            assert user.cached(0, 3 * STEP) == 0

    @rule(who=st.integers(1, 2))
    def toggle_caching(self, who: int) -> None:
        dev = self.users[who]
        assert isinstance(dev, Type2)
        control = dev.config["device"]
        control["control_2.disable_caching"] = 1 - control["control_2.disable_caching"]

    @invariant()
    def one_writes_or_many_read(self) -> None:
        if not hasattr(self, "site"):
            return
        first, second, host = self.site.first, self.site.second, self.site.host
        for base in self.model:
            for hpa in range(base, base + SPAN, 64):
                states = [user.state(hpa) for user in (host, first.cache, second.cache)]
                owners = sum(state >= E for state in states)
                assert owners == 0 or (owners == 1 and S not in states)
                if first.is_own(hpa) and first.bias[hpa - STEP] is Bias.DEVICE:
                    assert states[0] is I
                    assert states[2] is I
        assert all(len(each.cache.lines()) <= each.cache.limit for each in (first, second))

    def teardown(self) -> None:
        if hasattr(self, "site"):
            for dev in (self.site.first, self.site.second):
                dev.flush()
            for base, wanted in self.model.items():
                assert self.site.host.read(base, SPAN) == wanted


TestComplex = Complex.TestCase
TestComplex.settings = settings(max_examples=40, stateful_step_count=40, derandomize=True)
