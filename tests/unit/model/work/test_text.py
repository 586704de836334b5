# SPDX-License-Identifier: BSD-3-Clause
"""Work as text: words, sizes, ranges, options, files, and what each error names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network import text as networks
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.names import OPERATIONS
from nupa.model.work.perftest import ATOMIC_BYTES, QPS_MAX, TX_DEPTH, Perftest
from nupa.model.work.text import BW_MESSAGES, parse, parse_all, words

MIB = 1 << 20


def test_verbs_are_latency_unless_bandwidth_is_asked() -> None:
    assert parse("write:8") == Perftest("write", 8)
    assert parse("write-bw:64K") == Perftest("write", 65536, TX_DEPTH, BW_MESSAGES)
    assert parse("read-bw:1M,depth=16,messages=5") == Perftest("read", MIB, 16, 5)
    both = Perftest("send", 8, TX_DEPTH, BW_MESSAGES, qps=QPS_MAX, bidirectional=True)
    assert parse("send-bw:8,qps=16384,bidirectional=true") == parse(both.name) == both
    assert parse("write-bw:64K,depth=1").name == "write-bw:65536"
    assert parse("barrier").name == "barrier"


def test_collectives_have_nccl_tests_names_and_options() -> None:
    assert parse("allreduce:1G") == Collective("all-reduce", 1 << 30)
    assert parse("alltoall:64M") == Collective("all-to-all", 64 * MIB)
    assert parse("barrier") == Collective("barrier", 8)
    asked = parse("all-reduce:1M,algorithm=ring,protocol=ll128,channels=4")
    assert asked == Collective("all-reduce", MIB, "ring", "LL128", channels=4)


@pytest.mark.parametrize(
    ("program", "word"),
    [("ib_write_lat", "write"), ("ib_send_bw", "send-bw"), ("all_gather_perf", "all-gather")],
)
def test_names_of_programs_are_words(program: str, word: str) -> None:
    assert parse(f"{program}:4K") == parse(f"{word}:4K")


def test_a_range_is_the_powers_of_two_of_its_first_size() -> None:
    found = parse_all("allreduce:8..100")
    assert [each.name for each in found] == [f"all-reduce:{size}" for size in (8, 16, 32, 64)]
    with pytest.raises(ModelError, match="4 sizes: give one"):
        parse("allreduce:8..100")


@given(
    st.sampled_from([name for name, word in words().items() if word.sized]), st.integers(1, 1 << 40)
)
def test_the_name_of_a_work_is_text_of_the_same_work(word: str, size: int) -> None:
    size = ATOMIC_BYTES if word.startswith("atomic") else size
    work = parse(f"{word}:{size}")
    assert parse(work.name) == work


def test_each_collective_is_a_word() -> None:
    assert set(OPERATIONS) <= set(words())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no work ''"),
        ("allreduc:1G", "is 'all-reduce' meant"),
        ("write", "has no size: write write:64K"),
        ("write:", "has no size"),
        ("write:0", "sizes are 1 B or more"),
        ("write:8..4", "ranges rise"),
        ("write:many", "'many' is not a size"),
        ("write:1.5", "write whole bytes"),
        ("barrier:8", "barrier has no size"),
        ("atomic:64", "'atomic:64': an atomic has 8 bytes: write atomic:8"),
        ("ib_atomic_bw:16", "write ib_atomic_bw:8"),
        ("write:8,depth=4", "it takes no options"),
        ("write-bw:8,depth=0", "depth=0: give a number from 1 up"),
        ("write-bw:8,qps=0", "qps=0: give a number from 1 up"),
        ("write-bw:8,qps=16385", "qps=16385: give a number from 1 to 16384"),
        ("write-bw:8,bidirectional=1", "bidirectional=1: give true or false"),
        ("atomic-bw:8,qps=2", "it takes depth=…, messages=…"),
        ("allreduce:8,ring", "it takes algorithm=…"),
        ("allreduce:8,algorithm=pat", "all-reduce has no algorithm 'pat'"),
        ("@/none/such.toml", "/none/such.toml: No such file"),
        ("@", "'@' names no file: write @step.toml"),
    ],
)
def test_an_error_names_the_text_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(ModelError) as found:
        parse(text)
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("work = 3", "kind is None"),
        ('kind = "trainin"', "kind is 'trainin'"),
        ('work = "@x.toml"', "name the work itself"),
        ('work = "write:8"\nranks = 2', "the only key"),
        ("work", "not TOML"),
    ],
)
def test_a_wrong_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "work.toml"
    file.write_text(text)
    with pytest.raises(ModelError) as found:
        parse(f"@{file}")
    assert message in str(found.value)
    assert str(file) in str(found.value)


def test_a_file_names_a_work(tmp_path: Path) -> None:
    file = tmp_path / "work.toml"
    file.write_text('work = "allreduce:1M"\n')
    assert parse(f"@{file}") == parse("allreduce:1M")


_TOKENS = (*words(), ":", ",", "=", "..", "@", "8", "64K", "-", "depth", " ", "1e99", "\x00", "é")
_VALUES = ("0", "1", "7", "ring", "tree", "LL", "tcp", "randwrite", "true", str(1 << 62), "")


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(_TOKENS), max_size=8).map("".join) | st.text(max_size=30))
def test_any_text_is_a_work_or_an_error(text: str) -> None:
    with suppress(ModelError):
        assert parse(text).name


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(list(words())),
    st.integers(1, 1 << 63),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(_VALUES)), max_size=3),
    st.sampled_from(["ib-hdr", "nvlink4", "rack24", "tcp-100g", "fat_tree(8,roce-400,radix=4)"]),
)
def test_any_question_is_answered_with_a_time_or_an_error(
    word: str, size: int, options: list[tuple[int, str]], fabric: str
) -> None:
    known = words()[word].options
    chosen = [f",{known[at % len(known)]}={value}" for at, value in options if known]
    text = word + (f":{size}" if words()[word].sized else "") + "".join(chosen)
    with suppress(ModelError):
        assert predict(parse(text), networks.parse(fabric, 8)).time_ns > 0
