"""Calls against a scripted cluster: who is asked, in which version, and what is tried again."""

import struct
from uuid import UUID

import pytest

from levada.errors import BrokerRefused, ConnectionLost, MalformedFrame, TimedOut, Unreachable
from levada.wire.answers import LATEST, OffsetAndMetadata, ProducerId, TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.codes import ErrorCode
from support.batches import make_batch
from support.scripted import Partition, Script

TOPIC_ID = UUID(int=77)
AT = TopicPartition("t", 0)
HINTED = {"error_code": 6, "current_leader": {"leader_id": 2, "leader_epoch": 9}}


def make_script(**options):
    script = Script(**options)
    script.leaders = {"t": {0: (1, 3), 1: (2, 3)}}
    script.ids = {"t": TOPIC_ID}
    return script


def idempotent(sequence, value=b"v"):
    return make_batch(1, value=value, producer_id=5, producer_epoch=0, sequence=sequence).view


class Leaders:
    """Answers Produce; `errors` are given out first, one per request."""

    def __init__(self, script, *errors):
        self.errors = list(errors)
        self.logs = {}
        script.on(ApiKey.PRODUCE, self.produce)

    def produce(self, node, request, version):
        error = self.errors.pop(0) if self.errors else None
        if isinstance(error, Exception):
            raise error
        rows = []
        for topic in request.topic_data:
            name = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
            partitions = [self.append(one, error) for one in topic.partition_data]
            rows.append({**name, "partition_responses": partitions})
        endpoints = [{"node_id": 2, "host": "two", "port": 2}] if error == HINTED else []
        return {"responses": rows, "node_endpoints": endpoints}

    def append(self, data, error):
        if error is not None:
            return {"index": data.index, **error}
        code, offset = self.logs.setdefault(data.index, Partition()).append(bytes(data.records))
        return {"index": data.index, "error_code": code, "base_offset": offset}


def produced_to(script):
    return [node for node, name, _ in script.asked if name == "Produce"]


def test_the_leader_is_asked_and_remembered():
    script = make_script()
    Leaders(script)
    assert script.produce(AT, make_batch(1).view).base_offset == 0
    assert script.produce(AT, make_batch(1).view).base_offset == 1
    assert produced_to(script) == [1, 1]
    assert script.count("Metadata") == 1


def test_a_leader_that_names_its_successor_saves_asking_for_it():
    script = make_script()
    Leaders(script, HINTED)
    assert script.produce(AT, make_batch(1).view).base_offset == 0
    assert produced_to(script) == [1, 2]
    assert script.count("Metadata") == 1


def test_a_leader_that_names_nobody_makes_us_ask():
    script = make_script()
    leaders = Leaders(script)
    script.produce(AT, make_batch(1).view)
    leaders.errors = [{"error_code": 6}]
    script.leaders["t"][0] = (2, 4)
    script.produce(AT, make_batch(1).view)
    assert produced_to(script) == [1, 1, 2]
    assert script.count("Metadata") == 2


def test_a_successor_of_an_older_epoch_is_not_believed():
    script = make_script()
    Leaders(script, {"error_code": 6, "current_leader": {"leader_id": 2, "leader_epoch": 2}})
    script.produce(AT, make_batch(1).view)
    assert produced_to(script) == [1, 1]


@pytest.mark.parametrize("lost", [ConnectionLost(), TimedOut()])
def test_a_plain_batch_is_not_sent_twice_when_the_answer_was_lost(lost):
    script = make_script()
    Leaders(script, lost)
    with pytest.raises(type(lost)):
        script.produce(AT, make_batch(1).view)
    assert len(produced_to(script)) == 1


@pytest.mark.parametrize("lost", [ConnectionLost(), TimedOut(), {"error_code": 7}, {"error_code": 20}])
def test_an_idempotent_batch_is_sent_again_when_the_answer_was_lost(lost):
    script = make_script()
    Leaders(script, lost)
    assert script.produce(AT, idempotent(0)).base_offset == 0
    assert len(produced_to(script)) == 2


@pytest.mark.parametrize("code", [7, 20])
def test_an_ambiguous_refusal_of_a_plain_batch_is_the_answer(code):
    script = make_script()
    Leaders(script, {"error_code": code})
    with pytest.raises(BrokerRefused):
        script.produce(AT, make_batch(1).view)


@pytest.mark.parametrize("code", [2, 10, 87, 90, 9999])
def test_a_final_refusal_is_not_tried_again(code):
    script = make_script()
    Leaders(script, {"error_code": code, "error_message": "because"})
    with pytest.raises(BrokerRefused, match="partition t-0: because") as raised:
        script.produce(AT, make_batch(1).view)
    assert raised.value.code == code
    assert len(produced_to(script)) == 1


def test_a_batch_the_broker_has_already_is_a_duplicate():
    script = make_script()
    Leaders(script, {"error_code": 46, "base_offset": -1})
    assert script.produce(AT, idempotent(0)).duplicate


def test_what_passes_is_tried_until_time_is_up_with_growing_pauses():
    script = make_script(timeout_ms=10_000)
    Leaders(script, *[{"error_code": 19}] * 1000)
    with pytest.raises(BrokerRefused) as raised:
        script.produce(AT, make_batch(1).view)
    assert raised.value.name == "NOT_ENOUGH_REPLICAS"
    assert 8_000 < script.clock_ms <= 10_000
    assert script.pauses[0] <= 60
    assert all(800 <= pause <= 1200 for pause in script.pauses[6:])


def test_a_topic_nobody_knows_is_the_answer_after_a_while():
    script = make_script(settle_ms=500)
    with pytest.raises(BrokerRefused, match="topic new") as raised:
        script.fetch({("new", 0): 0})
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert 400 <= script.clock_ms < 2_000


def test_whoever_asks_whether_a_topic_is_there_is_told_at_once():
    script = make_script(settle_ms=500)
    with pytest.raises(BrokerRefused, match="topic new") as raised:
        script.topics(["new"], settle=False)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (script.clock_ms, script.pauses) == (0, [])


def test_a_topic_that_becomes_known_meanwhile_is_used():
    script = make_script()
    Leaders(script)
    script.leaders = {}
    found = script.metadata

    def later(*args):
        if script.count("Metadata") > 2:
            script.leaders = {"t": {0: (1, 0)}}
        return found(*args)

    script.on(ApiKey.METADATA, later)
    assert script.produce(AT, make_batch(1).view).base_offset == 0


def test_a_partition_without_a_leader_is_waited_for():
    script = make_script(timeout_ms=5_000)
    script.leaders["t"][0] = (-1, 3)
    with pytest.raises(BrokerRefused) as raised:
        script.produce(AT, make_batch(1).view)
    assert raised.value.name == "LEADER_NOT_AVAILABLE"
    assert script.clock_ms > 3_000


@pytest.mark.parametrize("partition", [2, -1])
def test_a_partition_the_topic_does_not_have_is_named(partition):
    script = make_script()
    with pytest.raises(BrokerRefused, match=f"partition t-{partition}") as raised:
        script.produce(("t", partition), make_batch(1).view)
    assert raised.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_broker_without_topic_ids_is_spoken_to_by_name():
    script = make_script()
    script.ids = {}
    Leaders(script)
    script.produce(AT, make_batch(1).view)
    assert script.asked[-1] == (1, "Produce", 12)


def test_the_newest_common_version_is_spoken():
    script = make_script(versions={ApiKey.PRODUCE: (3, 9)})
    Leaders(script)
    script.produce(AT, make_batch(1).view)
    assert script.asked[-1] == (1, "Produce", 9)


def test_a_topic_made_again_is_written_under_its_new_id():
    script = make_script()
    leaders = Leaders(script)
    script.produce(AT, make_batch(1).view)
    leaders.errors = [{"error_code": 100}]
    script.ids["t"] = UUID(int=78)
    script.produce(AT, make_batch(1).view)
    assert script.cluster.topic_id("t") == UUID(int=78)


def test_partitions_of_several_leaders_are_asked_at_once():
    script = make_script()
    Leaders(script)
    appended = script.produce_many({("t", 0): make_batch(1).view, ("t", 1): make_batch(1).view})
    assert list(appended) == [("t", 0), ("t", 1)]
    assert sorted(produced_to(script)) == [1, 2]


def test_only_what_failed_is_sent_again():
    script = make_script()
    leaders = Leaders(script, HINTED)
    script.produce_many({("t", 0): make_batch(1).view, ("t", 1): make_batch(1).view})
    assert produced_to(script) == [1, 2, 2]
    assert {index: len(log.batches) for index, log in leaders.logs.items()} == {0: 1, 1: 1}


def test_a_stream_repeats_in_order_what_failed_behind_a_failure():
    script = make_script()
    leaders = Leaders(script)
    leaders.errors = [None, HINTED, None, ConnectionLost(), None, None]
    batches = [idempotent(n, b"%d" % n) for n in range(12)]
    appended = script.produce_stream([(AT, batch) for batch in batches])
    assert [one.base_offset for one in appended] == list(range(12))
    assert leaders.logs[0].batches == [bytes(batch) for batch in batches]


def test_a_stream_has_no_more_batches_on_their_way_to_a_partition_than_a_broker_knows_again():
    script = make_script()
    leaders = Leaders(script)
    leaders.errors = [ConnectionLost()] * 5  # the sixth would be taken, with a hole before it
    batches = [idempotent(n, b"%d" % n) for n in range(12)]
    script.produce_stream([(AT, batch) for batch in batches], in_flight=100)
    assert leaders.logs[0].batches == [bytes(batch) for batch in batches]


def test_a_stream_waits_for_its_first_batch_in_a_partition():
    """A second one would be taken though the first is refused: nothing is known of its producer there."""
    script = make_script()
    leaders = Leaders(script)
    leaders.errors = [{"error_code": 6}, None]
    batches = [idempotent(n, b"%d" % n) for n in range(4)]
    script.produce_stream([(AT, batch) for batch in batches], in_flight=100)
    assert leaders.logs[0].batches == [bytes(batch) for batch in batches]


def test_a_stream_of_plain_batches_keeps_order_by_going_one_at_a_time():
    script = make_script()
    leaders = Leaders(script)
    leaders.errors = [None, {"error_code": 6}, None]
    batches = [make_batch(1, value=b"%d" % n).view for n in range(8)]
    script.produce_stream([(AT, batch) for batch in batches])
    assert leaders.logs[0].batches == [bytes(batch) for batch in batches]


def test_a_stream_ends_with_what_is_refused_for_good():
    script = make_script()
    Leaders(script, None, {"error_code": 10})
    with pytest.raises(BrokerRefused) as raised:
        script.produce_stream([(AT, idempotent(n)) for n in range(4)])
    assert raised.value.name == "MESSAGE_TOO_LARGE"


def fetch_answer(script, **errors):
    def handler(node, request, version):
        rows = [
            {"partition_index": one.partition, "records": b"batch", **errors.get(f"p{one.partition}", {})}
            for topic in request.topics
            for one in topic.partitions
        ]
        name = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
        return {"responses": [{**name, "partitions": rows}]}

    script.on(ApiKey.FETCH, handler)


def test_a_partition_between_leaders_does_not_hold_back_the_others():
    script = make_script()
    fetch_answer(script, p1={"error_code": 6, "records": b""})
    fetched = script.fetch({("t", 0): 0, ("t", 1): 0})
    assert {at: bytes(one.records) for at, one in fetched.items()} == {AT: b"batch"}
    assert script.pauses == []


def test_a_fetch_of_a_stale_leader_asks_again():
    script = make_script()
    errors = {"p0": {"error_code": 74, "records": b""}}
    fetch_answer(script, **errors)
    script.leaders["t"][0] = (1, 3)
    seen = []
    handler = script.handlers[ApiKey.FETCH]

    def refuse_once(node, request, version):
        seen.append(request.topics[0].partitions[0].current_leader_epoch)
        script.leaders["t"][0] = (1, 4)
        answer = handler(node, request, version)
        fetch_answer(script)
        return answer

    script.on(ApiKey.FETCH, refuse_once)
    assert bytes(script.fetch({AT: 0})[AT].records) == b"batch"
    assert seen == [3]
    assert script.cluster.leader(AT) == (1, 4)


def test_an_answer_that_leaves_out_a_partition_is_malformed():
    script = make_script()
    script.on(ApiKey.LIST_OFFSETS, lambda *_: {"topics": []})
    with pytest.raises(MalformedFrame, match="left a partition out"):
        script.list_offsets({AT: LATEST})


def before_sending(error):
    error.before_sending = True
    return error


def test_the_next_bootstrap_address_is_tried():
    script = make_script()
    metadata = script.metadata

    def handler(node, request, version):
        if node == -1:
            raise before_sending(Unreachable())
        return metadata(node, request, version)

    script.on(ApiKey.METADATA, handler)
    assert list(script.topics()) == ["t"]
    assert [node for node, _, _ in script.asked] == [-1, -2]


def test_a_cluster_that_is_gone_is_unreachable_when_time_is_up():
    script = make_script(timeout_ms=3_000)

    def gone(*_):
        raise before_sending(Unreachable("nothing there"))

    script.on(ApiKey.METADATA, gone)
    with pytest.raises(Unreachable, match="nothing there"):
        script.topics()
    assert 1_500 < script.clock_ms <= 3_000


class Coordinator:
    """Answers FindCoordinator with node 1, then 2; only 2 is one."""

    def __init__(self, script):
        self.searches = 0
        script.on(ApiKey.FIND_COORDINATOR, self.find)

    def find(self, _node, request, version):
        self.searches += 1
        found = {"node_id": min(self.searches, 2), "host": "h", "port": 1}
        return {"coordinators": [{**found, "key": request.coordinator_keys[0]}]} if version >= 4 else found


@pytest.mark.parametrize("versions", [{}, {ApiKey.FIND_COORDINATOR: (0, 2)}])
def test_a_coordinator_that_moved_is_looked_for_again(versions):
    script = make_script(versions=versions)
    coordinator = Coordinator(script)

    def commit(node, request, _version):
        code = 0 if node == 2 else 16
        rows = [{"partition_index": 0, "error_code": code}]
        return {"topics": [{"name": request.topics[0].name, "partitions": rows}]}

    script.on(ApiKey.OFFSET_COMMIT, commit)
    script.offset_commit("g", {AT: 5})
    script.offset_commit("g", {AT: 6})
    assert coordinator.searches == 2
    assert [(node, version) for node, name, version in script.asked if name == "OffsetCommit"] == [
        (1, 9),
        (2, 9),
        (2, 9),
    ]


@pytest.mark.parametrize("newest", [2, 5, 7, 8, 9, 10])
def test_offsets_are_read_in_every_form_the_protocol_had(newest):
    script = make_script(versions={ApiKey.OFFSET_FETCH: (1, newest)})
    Coordinator(script)

    def fetch(_node, request, version):
        rows = [
            {"partition_index": 0, "committed_offset": 7, "metadata": "m"},
            {"partition_index": 1, "committed_offset": -1, "metadata": None},
        ]
        topics = [{"name": "t", "partitions": rows}]
        return {"groups": [{"group_id": "g", "topics": topics}]} if version >= 8 else {"topics": topics}

    script.on(ApiKey.OFFSET_FETCH, fetch)
    assert script.offset_fetch("g") == {AT: OffsetAndMetadata(7, -1, "m")}
    assert script.asked[-1][2] == min(newest, 9)


def test_a_controller_that_moved_is_looked_for_again():
    script = make_script()
    metadata = script.metadata

    def moving(node, request, version):
        return {**metadata(node, request, version), "controller_id": script.count("Metadata")}

    def create(node, request, _version):
        code = 0 if node == 2 else 41
        return {"topics": [{"name": request.topics[0].name, "error_code": code, "topic_id": TOPIC_ID}]}

    script.on(ApiKey.METADATA, moving)
    script.on(ApiKey.CREATE_TOPICS, create)
    assert script.create_topic("new", 1) == TOPIC_ID
    assert [node for node, name, _ in script.asked if name == "CreateTopics"] == [1, 2]


def test_a_topic_is_not_made_twice_when_the_answer_was_lost():
    script = make_script()

    def create(*_):
        raise ConnectionLost

    script.on(ApiKey.CREATE_TOPICS, create)
    with pytest.raises(ConnectionLost):
        script.create_topic("new", 1)
    assert script.count("CreateTopics") == 1


class Transactions:
    """A transaction coordinator that notes what it is asked, in order."""

    def __init__(self, script):
        self.epoch = 0
        self.script = script
        Coordinator(script)
        script.on(ApiKey.INIT_PRODUCER_ID, self.init)
        script.on(ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions)
        script.on(ApiKey.ADD_OFFSETS_TO_TXN, lambda *_: {})
        script.on(ApiKey.TXN_OFFSET_COMMIT, lambda *_: {})
        script.on(ApiKey.END_TXN, self.end)

    def init(self, _node, request, _version):
        self.epoch += 1
        return {"producer_id": 9, "producer_epoch": self.epoch}

    def add_partitions(self, _node, request, _version):
        return {"results_by_topic_v3_and_below": []}

    def end(self, _node, _request, version):
        if version < 5:
            return {}
        self.epoch += 1
        return {"producer_id": 9, "producer_epoch": self.epoch}

    def calls(self):
        left_out = ("Metadata", "FindCoordinator")
        return [(name, version) for _, name, version in self.script.asked if name not in left_out]


def run_one(producer):
    producer.init()
    producer.send({AT: make_batch(2).view})
    producer.send({AT: make_batch(1).view})
    producer.send_offsets("g", {AT: 3})
    producer.commit()


def test_a_transaction_of_the_first_form_announces_what_it_writes():
    script = make_script(tv2=False)
    transactions, _ = Transactions(script), Leaders(script)
    producer = script.producer("x")
    run_one(producer)
    assert transactions.calls() == [
        ("InitProducerId", 5),
        ("AddPartitionsToTxn", 3),
        ("Produce", 11),
        ("Produce", 11),
        ("AddOffsetsToTxn", 4),
        ("TxnOffsetCommit", 4),
        ("EndTxn", 4),
    ]
    assert producer.producer == ProducerId(9, 1)


def test_a_transaction_of_the_second_form_just_writes_and_moves_to_the_next_epoch():
    script = make_script()
    transactions, _ = Transactions(script), Leaders(script)
    producer = script.producer("x")
    run_one(producer)
    assert transactions.calls() == [
        ("InitProducerId", 5),
        ("Produce", 13),
        ("Produce", 13),
        ("TxnOffsetCommit", 5),
        ("EndTxn", 5),
    ]
    assert producer.producer == ProducerId(9, 2)


@pytest.mark.parametrize(("tv2", "sequences"), [(True, [0, 2, 0]), (False, [0, 2, 3])])
def test_sequences_go_on_within_an_epoch_and_begin_anew_with_the_next(tv2, sequences):
    script = make_script(tv2=tv2)
    Transactions(script)
    seen = []

    def produce(_node, request, version):
        data = request.topic_data[0].partition_data[0]
        seen.append(struct.unpack_from(">i", data.records, 53)[0])
        name = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "t"}
        return {"responses": [{**name, "partition_responses": [{"index": 0}]}]}

    script.on(ApiKey.PRODUCE, produce)
    producer = script.producer("x")
    run_one(producer)
    producer.send({AT: make_batch(1).view})
    assert seen == sequences


def test_after_a_failure_the_first_form_takes_a_new_epoch():
    script = make_script(tv2=False)
    transactions, _ = Transactions(script), Leaders(script, {"error_code": 10})
    producer = script.producer("x")
    producer.init()
    with pytest.raises(BrokerRefused):
        producer.send({AT: make_batch(1).view})
    producer.abort()
    assert [name for name, _ in transactions.calls()][-2:] == ["EndTxn", "InitProducerId"]
    assert producer.producer == ProducerId(9, 2)


def test_a_transaction_without_anything_in_it_asks_nobody():
    script = make_script()
    transactions = Transactions(script)
    producer = script.producer("x")
    producer.init()
    producer.commit()
    producer.abort()
    assert [name for name, _ in transactions.calls()] == ["InitProducerId"]
