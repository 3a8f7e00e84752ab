"""The board and the one seat, on Levada and on Apache Kafka."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from levada.errors import BrokerRefused
from levada.spark.runner import seat as seats
from levada.spark.runner.board import Board, now_ms
from levada.spark.runner.records import TOPIC, Actual, RunnerSeen, State, Wanted, encoded
from levada.spark.runner.seat import Replaced, RunnerIsUp, Seat
from levada.wire.blocking import BlockingClient
from support.brokers import Broker

ELSEWHERE = "another-machine"


class Office:
    """A cluster whose board is new, and clients for it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clients: list[BlockingClient] = []
        client = self.client()
        with suppress(BrokerRefused):
            client.delete_topic(TOPIC)
        self.said: list[str] = []

    def client(self) -> BlockingClient:
        self.clients.append(BlockingClient(self.broker.bootstrap, settle_ms=15_000))
        return self.clients[-1]

    def board(self) -> Board:
        board = Board(self.client())
        board.create()
        return board

    def seat(self, name: str, *, host: str = ELSEWHERE, pid: int = 7) -> Seat:
        board = self.board()
        me = RunnerSeen(id=name, host=host, pid=pid, since_ms=now_ms(), seen_ms=now_ms())
        return Seat(board._client, board, me)


@pytest.fixture
def office(either: Broker) -> Iterator[Office]:
    made = Office(either)
    yield made
    for client in made.clients:
        client.close()


def record(name: str, state: State) -> tuple[bytes, bytes]:
    return f"actual/{name}".encode(), encoded(Actual(state=state, since_ms=1))


def test_wishes_and_states_are_read_back_by_anybody(office: Office) -> None:
    empty = Board(BlockingClient(office.broker.bootstrap, settle_ms=0))
    office.clients.append(empty._client)
    with suppress(BrokerRefused):
        assert empty.read().actual == {}
    board, seat = office.board(), office.seat("r1")
    seat.take(office.said.append)
    seat.write([record("a", State.RUNNING), record("b", State.FAILED)])
    board.want("a", Wanted(run=False, by="ann"))
    seat.write([(b"actual/b", None)])
    for reader in (board, office.board()):
        ledger = reader.read()
        assert list(ledger.actual) == ["a"] and ledger.wanted == {"a": Wanted(run=False, by="ann")}
        assert ledger.runner is not None and ledger.runner.id == "r1" and ledger.is_attended(now_ms())
    # Only what is new is read, and nothing is lost by it.
    board.want("b", Wanted(epoch=3))
    assert board.read().wanted == office.board().read().wanted
    settings = office.client().describe_configs(TOPIC, keys=["cleanup.policy"])
    assert settings["cleanup.policy"].value == "compact"


def test_a_runner_that_gives_a_sign_of_life_is_not_taken_over(office: Office) -> None:
    first, second = office.seat("r1"), office.seat("r2")
    first.take(office.said.append)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.2):
            first.write(())

    living = threading.Thread(target=live)
    living.start()
    try:
        with pytest.raises(RunnerIsUp, match=f"process 7 on {ELSEWHERE}"):
            second.take(office.said.append)
    finally:
        ended.set()
        living.join()
    assert any("watching" in one for one in office.said)
    first.write([record("a", State.RUNNING)])
    assert list(office.board().read().actual) == ["a"]


def test_a_runner_that_said_goodbye_is_followed_at_once_and_one_that_is_silent_after_a_while(office: Office) -> None:
    first, second, third = (office.seat(name) for name in ("r1", "r2", "r3"))
    first.take(office.said.append)
    first.write((), leaving=True)
    second.take(office.said.append)
    assert office.said == []
    third.take(office.said.append, patience_s=0.5)
    assert len(office.said) == 1 and "there may be a runner" in office.said[0]
    ledger = office.board().read()
    assert ledger.runner is not None and ledger.runner.id == "r3"


def test_a_process_of_this_machine_that_is_no_more_is_followed_at_once(office: Office) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = socket.gethostname()
    office.seat("r1", host=here, pid=gone.pid).take(office.said.append)
    office.seat("r2", host=here, pid=os.getpid()).take(office.said.append)
    assert office.said == []


def test_a_runner_that_was_taken_over_is_told_and_what_it_writes_is_not_seen(office: Office) -> None:
    first, second = office.seat("r1"), office.seat("r2")
    first.take(office.said.append)
    second.take(office.said.append, patience_s=0)
    with pytest.raises(Replaced, match=f"another runner has taken over.*process 7 on {ELSEWHERE}"):
        first.write([record("a", State.RUNNING)])
    second.write([record("b", State.RUNNING)])
    assert list(office.board().read().actual) == ["b"]
    with pytest.raises(Replaced):
        first.write([record("a", State.RUNNING)])


def test_a_transaction_that_the_broker_gave_up_is_not_taken_for_a_takeover(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same producer initialised elsewhere looks the same: fenced, with nobody else on the board."""
    first = office.seat("r1")
    first.take(office.said.append)
    office.client().transactional_producer(seats.TRANSACTIONAL_ID).init()
    first.write([record("a", State.RUNNING)])
    assert list(office.board().read().actual) == ["a"]


def test_a_write_whose_answers_are_lost_is_settled_before_the_next(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = office.seat("r1")
    seat.take(office.said.append)
    commit = seat._producer.commit
    lost = [True]

    def commit_and_lose() -> None:
        commit()
        if lost:
            lost.clear()
            # As when the connection broke before the answer: the producer knows of nothing.
            raise ConnectionError

    monkeypatch.setattr(seat._producer, "commit", commit_and_lose)
    with pytest.raises(ConnectionError):
        seat.write([record("a", State.RUNNING)])
    seat.write([record("b", State.RUNNING)])
    assert list(office.board().read().actual) == ["a", "b"]
