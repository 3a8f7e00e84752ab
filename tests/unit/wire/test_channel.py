import pytest

from levada.errors import MalformedFrame, UnsupportedVersion
from levada.wire import codec
from levada.wire.apis import ApiKey
from levada.wire.channel import Channel, Offer
from levada.wire.framing import frame


def answer(correlation_id, key=ApiKey.HEARTBEAT, version=4):
    body = codec.write_response(key, version, {"error_code": 27})
    return b"".join(frame([codec.write_response_header(key, version, correlation_id), body]))


def test_answers_come_back_by_the_ids_they_were_asked_under():
    channel = Channel("me")
    ids = [channel.ask(ApiKey.HEARTBEAT, 4, [b"body"])[0] for _ in range(3)]
    found = list(channel.feed(b"".join(map(answer, ids))))
    assert [correlation_id for correlation_id, _ in found] == ids
    assert codec.read_response(ApiKey.HEARTBEAT, 4, found[0][1]).error_code == 27


def test_a_request_says_who_asks():
    _, parts = Channel("me").ask(ApiKey.HEARTBEAT, 4, [b"body"])
    header = codec.read_request_header(b"".join(parts)[4:])
    assert (header.api_key, header.version, header.client_id) == (ApiKey.HEARTBEAT, 4, "me")
    assert parts[-1] == b"body"


def test_what_is_not_answered_is_not_waited_for():
    channel = Channel()
    channel.ask(ApiKey.PRODUCE, 9, [b""], answered=False)
    expected, _ = channel.ask(ApiKey.HEARTBEAT, 4, [b""])
    assert [correlation_id for correlation_id, _ in channel.feed(answer(expected))] == [expected]


@pytest.mark.parametrize(("asked", "reason"), [(0, "nobody asked"), (1, "out of turn")])
def test_an_answer_out_of_turn_is_malformed(asked, reason):
    channel = Channel()
    for _ in range(asked):
        channel.ask(ApiKey.HEARTBEAT, 4, [b""])
    with pytest.raises(MalformedFrame, match=reason):
        list(channel.feed(answer(99)))


@pytest.mark.parametrize(
    ("theirs", "bounds", "version"),
    [((0, 4), (None, None), 4), ((0, 9), (None, None), 4), ((1, 2), (None, None), 2), ((0, 4), (None, 3), 3)],
)
def test_the_newest_common_version_is_chosen(theirs, bounds, version):
    assert Offer({ApiKey.HEARTBEAT: theirs}, {}).best(ApiKey.HEARTBEAT, *bounds) == version


@pytest.mark.parametrize(("theirs", "bounds"), [((5, 9), (None, None)), ((0, 2), (3, None)), ((3, 4), (None, 2))])
def test_no_common_version_is_said_so(theirs, bounds):
    with pytest.raises(UnsupportedVersion, match="Heartbeat"):
        Offer({ApiKey.HEARTBEAT: theirs}, {}).best(ApiKey.HEARTBEAT, *bounds)


def test_a_call_the_broker_does_not_know_is_named():
    with pytest.raises(UnsupportedVersion, match="does not know Heartbeat"):
        Offer({}, {}).best(ApiKey.HEARTBEAT)
