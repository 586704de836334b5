# SPDX-License-Identifier: BSD-3-Clause
"""Collectives with wrong arguments, ranks that fail, leave, come late or make other calls."""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nupa.base.errors import LocalError
from nupa.collectives import Communicator, RankError
from nupa.collectives.board import Board
from nupa.collectives.rank import NAME_BYTES_MAX, RANKS_MAX, BoardRow, RankState
from nupa.collectives.switch import SwitchReduction
from nupa.collectives.windows import Windows
from nupa.fabric import Fabric
from nupa.memory.window import WindowError
from tests.unit.collectives.rank_threads import NAME, check_all, run_ranks


@pytest.fixture
def alone() -> Any:
    with Fabric(hosts=1) as fabric, Communicator("alone", 0, 1, fabric=fabric) as ranks:
        yield ranks


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.all_reduce([1, 2]), "list: give a NumPy array"),
        (lambda r: r.all_reduce(np.ones((4, 4))[:, 1]), "not contiguous"),
        (lambda r: r.all_reduce(np.ones(4, "c8")), "elements of complex64: use one of float16"),
        (lambda r: r.all_reduce(np.ones(4, ">f4")), "elements of >f4"),
        (lambda r: r.all_reduce(np.ones(4, "u1")), "elements of uint8"),
        (lambda r: r.all_reduce(np.ones(4), type_="bf16"), "bf16 has 2 bytes, float64 has 8"),
        (lambda r: r.all_reduce(np.ones(4), type_="f8"), "no type 'f8'"),
        (lambda r: r.all_reduce(np.ones(4), "xor"), "are of integers"),
        (lambda r: r.all_reduce(np.ones(4), "prod"), "no operator 'prod'"),
        (lambda r: r.all_reduce(np.ones(4), algorithm="star"), "no algorithm 'star'"),
        (lambda r: r.all_reduce(np.ones(4), out=np.ones(3)), "1 ranks need 4 x f64"),
        (lambda r: r.all_reduce(np.ones(4), out=np.ones(4, "f4")), "into 4 x f32"),
        (lambda r: r.broadcast(np.ones(4), 1), "root 1: ranks are 0 to 0"),
        (lambda r: r.broadcast(np.broadcast_to(1.0, 4)), "not contiguous|read-only"),
        (lambda r: r.broadcast(np.frombuffer(bytes(8))), "read-only"),
    ],
)
def test_a_wrong_argument_is_named(
    alone: Communicator, call: Callable[[Communicator], Any], message: str
) -> None:
    with pytest.raises(LocalError, match=message):
        call(alone)
    alone.barrier()  # nothing was sent: it works on


def test_parts_are_equal_or_refused() -> None:
    def work(ranks: Communicator) -> None:
        with pytest.raises(LocalError, match="3 elements: give a multiple of the 2 ranks"):
            ranks.reduce_scatter(np.ones(3))

    check_all(run_ranks(2, work, over="windows"))


@pytest.mark.parametrize(
    ("name", "rank", "size", "message"),
    [
        ("n", 0, 0, "0 ranks: a communicator has 1 to 64"),
        ("n", 0, RANKS_MAX + 1, "65 ranks: a communicator has 1 to 64"),
        ("n", 2, 2, "rank 2: 2 ranks are 0 to 1"),
        ("n", -1, 2, "rank -1"),
        ("", 0, 1, "the name '': give 1 to 25 bytes"),
        ("n" * (NAME_BYTES_MAX + 1), 0, 1, "give 1 to 25 bytes"),
    ],
)
def test_limits_have_an_error_one_past_them(name: str, rank: int, size: int, message: str) -> None:
    with Fabric(hosts=1) as fabric, pytest.raises(LocalError, match=message):
        Communicator(name, rank, size, fabric=fabric)


def test_the_longest_name_is_one() -> None:
    with Fabric(hosts=1) as fabric, Communicator("n" * NAME_BYTES_MAX, 0, 1, fabric=fabric):
        pass


def test_what_moves_data_is_checked() -> None:
    with Fabric(hosts=1) as fabric, pytest.raises(LocalError, match="choose verbs or windows"):
        Communicator("n", 0, 1, fabric=fabric, over="tcp")  # type: ignore[arg-type]


def test_in_network_needs_distinct_hosts() -> None:
    def work(ranks: Communicator) -> None:
        with pytest.raises(LocalError, match=r"several ranks are on one host.*use ring or tree"):
            ranks.barrier(algorithm="in-network")

    with Fabric(hosts=1) as fabric:
        check_all(run_ranks(2, work, fabric=fabric, over="windows"))


def test_without_numpy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any, **options: Any) -> Any:
        if name == "numpy":
            raise ImportError(name)
        return found(name, *rest, **options)

    with Fabric(hosts=1) as fabric:
        monkeypatch.setattr(builtins, "__import__", missing)
        with pytest.raises(LocalError, match="pip install numpy"):
            Communicator("n", 0, 1, fabric=fabric)


@pytest.mark.parametrize("over", ["verbs", "windows"])
@pytest.mark.parametrize("algorithm", ["ring", "tree", "in-network"])
def test_a_rank_that_raises_ends_the_calls_of_the_others(over: Any, algorithm: Any) -> None:
    def work(ranks: Communicator) -> None:
        ranks.all_reduce(np.ones(10), algorithm=algorithm)
        if ranks.rank == 1:
            raise ValueError("out of luck")
        ranks.all_reduce(np.ones(10), algorithm=algorithm)

    zero, one, two = run_ranks(3, work, over=over)
    assert isinstance(one, ValueError)
    for other in (zero, two):
        assert isinstance(other, RankError)
    assert any("rank 1 failed: out of luck" in str(other) for other in (zero, two))


@pytest.mark.parametrize("over", ["verbs", "windows"])
@pytest.mark.parametrize("algorithm", ["ring", "tree", "in-network"])
def test_ranks_that_make_different_calls_are_told(over: Any, algorithm: Any) -> None:
    def work(ranks: Communicator) -> None:
        ranks.barrier(algorithm=algorithm)
        ranks.all_reduce(np.ones(10 + ranks.rank), algorithm=algorithm)

    found = run_ranks(2, work, over=over)
    assert all(isinstance(each, RankError) for each in found)
    assert any("makes another call" in str(each) for each in found)


def test_a_rank_that_makes_no_more_calls_is_named_at_the_deadline() -> None:
    def work(ranks: Communicator) -> None:
        if ranks.rank == 0:
            ranks.barrier(algorithm="tree")

    zero, one = run_ranks(2, work, over="windows", deadline_s=0.3)
    assert isinstance(zero, RankError)
    assert "rank 1" in str(zero)
    assert one is None


def test_a_communicator_that_failed_says_so_again() -> None:
    again: list[BaseException] = []

    def work(ranks: Communicator) -> None:
        if ranks.rank == 1:
            raise ValueError("gone")
        with pytest.raises(RankError):
            ranks.barrier()
        try:
            ranks.barrier()
        except RankError as error:
            again.append(error)

    run_ranks(2, work, over="windows")
    assert "this communicator has failed" in str(again[0])


CARDS = [b"{", b"\xff", b"[]", b'{"pairs": 3}', b'{"inbox": "x"}', b'{"inbox": null}', b" " * 16384]


@pytest.mark.parametrize("over", ["verbs", "windows"])
@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_a_card_that_another_process_damaged_is_an_error(
    monkeypatch: pytest.MonkeyPatch, over: Any, card: bytes
) -> None:
    put = Board.put_card

    def damaged(board: Board, right: dict[str, Any]) -> None:
        if board.rank == 0:
            put(board, right)
            return
        board._window.write(board._card_at(1), card)
        board.store(BoardRow(1).card, len(card) if card != CARDS[-1] else 2**40)

    monkeypatch.setattr(Board, "put_card", damaged)
    zero, one = run_ranks(
        2, lambda ranks: ranks.all_reduce(np.ones(4), algorithm="ring"), over=over, deadline_s=5
    )
    assert isinstance(zero, RankError)
    assert isinstance(one, RankError)
    assert "the row of rank 1 on the board is damaged" in str(zero)


@pytest.mark.parametrize("host", [2, 2**40])
def test_a_row_with_a_host_that_is_none_is_an_error(
    monkeypatch: pytest.MonkeyPatch, host: int
) -> None:
    store = Board.store

    def damaged(board: Board, offset: int, value: int) -> None:
        store(board, offset, host if offset == BoardRow(1).host else value)

    monkeypatch.setattr(Board, "store", damaged)
    found = run_ranks(2, lambda ranks: ranks.barrier(), over="windows", deadline_s=5)
    assert all(isinstance(each, RankError) for each in found)
    assert any("the row of rank 1 on the board is damaged" in str(each) for each in found)


def test_a_communicator_may_be_closed_twice() -> None:
    with Fabric(hosts=1) as fabric:
        ranks = Communicator(NAME, 0, 1, fabric=fabric)
        ranks.close()
        ranks.close()


def test_ranks_that_never_come_are_named() -> None:
    with Fabric(hosts=2) as fabric:
        with pytest.raises(RankError, match=r"rank 1, 2 did not come in 0\.1 s"):
            Communicator(NAME, 0, 3, fabric=fabric, deadline_s=0.1)
        with pytest.raises(RankError, match=r"rank 0 did not come to 'local' in 0\.1 s"):
            Communicator(NAME, 1, 3, fabric=fabric, deadline_s=0.1)
        assert fabric.pool.regions() == []


def test_a_rank_has_one_process_and_all_agree_on_their_number() -> None:
    with Fabric(hosts=2) as fabric:
        first: list[Communicator] = []
        thread = threading.Thread(
            target=lambda: first.append(Communicator(NAME, 0, 2, fabric=fabric))
        )
        thread.start()
        with pytest.raises(LocalError, match="of 3: rank 0 expects 2 ranks"):
            Communicator(NAME, 1, 3, fabric=fabric)
        second = Communicator(NAME, 1, 2, fabric=fabric)
        thread.join()
        for rank in range(2):
            with pytest.raises(
                LocalError, match=rf"another process has this rank, .*\(pid {os.getpid()}\)"
            ):
                Communicator(NAME, rank, 2, fabric=fabric)
        closing = threading.Thread(target=second.close)
        closing.start()
        first[0].close()
        closing.join()
        assert fabric.pool.regions() == []


def test_a_result_from_memory_that_was_taken_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where another rank saw one die and freed the group.
    whole = SwitchReduction.barrier
    passed = threading.Event()  # rank 0 is through, so rank 1's failure is none of its own

    def barrier(switch: SwitchReduction) -> None:
        whole(switch)
        if switch._rounds != 2:
            return
        if switch._board.rank == 0:
            passed.set()
            return
        assert passed.wait(20)
        switch._window.window.revoke()

    fail = Board.fail

    def failed(board: Board, why: str) -> None:
        fail(board, why)
        end_s = time.monotonic() + 20
        while board.state(0) != RankState.LEFT:  # it waits for rank 1 no more
            assert time.monotonic() < end_s
            os.sched_yield()

    monkeypatch.setattr(SwitchReduction, "barrier", barrier)
    monkeypatch.setattr(Board, "fail", failed)
    found = run_ranks(2, lambda ranks: ranks.all_reduce(np.ones(9, "i8"), algorithm="in-network"))
    assert found[0].tolist() == [2] * 9
    assert isinstance(found[1], WindowError)
    assert "its memory is gone" in str(found[1])


def test_a_barrier_whose_counter_was_taken_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Board.waiting

    def begun(board: Board, what: str) -> Callable[[], None]:
        # Rank 0 may be in the barrier before still, and does not come to this one: the counter
        # reads all ones before it does.
        if board.rank == 1:
            switches[1]._window.window.revoke()
        return waiting(board, what)

    switches: dict[int, SwitchReduction] = {}

    def work(ranks: Communicator) -> None:
        switches[ranks.rank] = ranks._in_network()
        ranks.barrier(algorithm="ring")
        if ranks.rank == 0:
            return
        monkeypatch.setattr(Board, "waiting", begun)
        with pytest.raises(WindowError, match="its memory is gone"):
            switches[1].barrier()
        monkeypatch.setattr(Board, "waiting", waiting)

    check_all(run_ranks(2, work))


def test_an_inbox_that_was_taken_away_is_an_error_before_its_bytes_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Windows.try_send

    def try_send(windows: Windows, peer: int, data: Any, tag: int) -> bool:
        sent = whole(windows, peer, data, tag)
        if windows._board.rank == 1:
            windows._inbox.revoke()
        return sent

    monkeypatch.setattr(Windows, "try_send", try_send)
    found = run_ranks(
        2, lambda ranks: ranks.all_reduce(np.ones(9, "i8"), algorithm="ring"), over="windows"
    )
    assert all(isinstance(each, RankError) for each in found)
    assert "the inbox of rank 1 is gone" in str(found[1])


def test_nothing_stays_on_the_fabric() -> None:
    with Fabric(hosts=3) as fabric:
        for algorithm in ("ring", "in-network"):
            for over in ("verbs", "windows"):
                found = run_ranks(
                    3,
                    lambda ranks, way=algorithm: ranks.barrier(algorithm=way),
                    fabric=fabric,
                    over=over,
                )
                check_all(found)
        assert fabric.pool.regions() == []
        assert fabric.processes() == []
