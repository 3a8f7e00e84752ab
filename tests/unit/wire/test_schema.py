import pytest

from levada.errors import UnsupportedVersion
from levada.wire import schema
from levada.wire.apis import APIS, ApiKey, api_of
from support import kio_schemas


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_our_table_of_a_message_is_kafkas(key, kind):
    assert schema.message(key, kind) == kio_schemas.message(key, kind)


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_a_call_offers_versions_its_schema_has(key):
    api = APIS[key]
    request = schema.message(key, "request")
    assert api.min_version == request.versions.low
    assert api.max_version <= request.versions.high
    assert api.flexible == request.flexible == schema.message(key, "response").flexible


def test_the_only_version_held_back_is_the_one_kafka_calls_unstable():
    held_back = {key for key, api in APIS.items() if api.max_version < schema.message(key, "request").versions.high}
    assert held_back == {ApiKey.INIT_PRODUCER_ID}


def test_a_message_is_described_as_it_was_written():
    text = schema.describe(schema.message(ApiKey.OFFSET_FETCH, "request"))
    assert schema.parse(text) == schema.message(ApiKey.OFFSET_FETCH, "request")
    assert "topics [] 1-7 ?2-7" in text


def test_every_key_names_its_call():
    assert {key: key.name.lower() for key in ApiKey} == {ApiKey(api.key): api.file for api in APIS.values()}


def test_the_answer_to_api_versions_never_has_a_flexible_header():
    assert APIS[ApiKey.API_VERSIONS].response_header(4) == 0
    assert APIS[ApiKey.METADATA].response_header(12) == 1
    assert APIS[ApiKey.METADATA].response_header(8) == 0


@pytest.mark.parametrize(
    ("key", "version"), [(999, None), (ApiKey.HEARTBEAT, 5), (ApiKey.FETCH, 3), (ApiKey.FETCH, -1)]
)
def test_an_unknown_call_or_version_is_named(key, version):
    with pytest.raises(UnsupportedVersion, match=r"not spoken here|not known here"):
        api_of(key, version)
