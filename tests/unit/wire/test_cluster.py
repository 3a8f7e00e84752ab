import pytest

from levada.errors import Unreachable
from levada.wire import codec
from levada.wire.apis import ApiKey
from levada.wire.cluster import Cluster, parse_bootstrap
from levada.wire.endpoints import Endpoint


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:5,[fe80::1]", [("::1", 5), ("fe80::1", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
    ],
)
def test_bootstrap_addresses_are_read(text, addresses):
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize("text", ["a:b", "a:0", "a:70000", "a:"])
def test_what_is_no_address_is_said_so(text):
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


def test_a_cluster_needs_a_bootstrap_address():
    with pytest.raises(ValueError, match="bootstrap"):
        Cluster("")


def metadata(*leaders, error=0, name="t"):
    rows = [{"partition_index": index, "leader_id": node, "leader_epoch": 5} for index, node in enumerate(leaders)]
    fields = {
        "brokers": [{"node_id": node, "host": f"h{node}", "port": node} for node in (1, 2)],
        "controller_id": 1,
        "topics": [{"name": name, "partitions": rows, "error_code": error}],
    }
    return codec.read_response(ApiKey.METADATA, 12, codec.write_response(ApiKey.METADATA, 12, fields))


@pytest.fixture
def cluster():
    made = Cluster("boot:1")
    made.update(metadata(1, 2), everything=False)
    return made


def test_leaders_are_those_the_brokers_named(cluster):
    assert [cluster.leader(("t", index)) for index in range(3)] == [(1, 5), (2, 5), None]
    assert cluster.candidates() == [1, 2, -1]
    assert cluster.address(2) == ("h2", 2)
    assert cluster.address(-1) == ("boot", 1)


def test_a_leader_that_is_no_known_broker_is_none(cluster):
    cluster.update(metadata(-1, 9), everything=False)
    assert cluster.leader(("t", 0)) is cluster.leader(("t", 1)) is None


def test_an_unknown_node_has_no_address(cluster):
    with pytest.raises(Unreachable, match="node 7"):
        cluster.address(7)


def test_a_topic_in_error_is_forgotten(cluster):
    cluster.update(metadata(error=3), everything=False)
    assert cluster.leader(("t", 0)) is None
    assert "t" not in cluster.topics


def test_an_answer_about_everything_replaces_everything(cluster):
    cluster.update(metadata(1, name="other"), everything=True)
    assert list(cluster.topics) == ["other"]
    assert cluster.leader(("t", 0)) is None


@pytest.mark.parametrize(
    ("leader", "after"),
    [((3, 6), (3, 6)), ((2, 6), (2, 6)), ((3, 5), None), ((3, 4), None), ((-1, -1), None), (None, None)],
)
def test_a_successor_is_believed_only_with_a_newer_epoch(cluster, leader, after):
    cluster.moved(("t", 0), leader, [Endpoint(3, "h3", 3)])
    assert cluster.leader(("t", 0)) == after


def test_what_a_lost_node_led_and_coordinated_is_forgotten(cluster):
    cluster.coordinators = {(0, "g"): 1, (0, "h"): 2}
    cluster.forget_node(1)
    assert cluster.leader(("t", 0)) is None
    assert cluster.leader(("t", 1)) == (2, 5)
    assert cluster.coordinators == {(0, "h"): 2}
