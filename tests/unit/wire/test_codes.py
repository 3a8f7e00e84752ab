import pytest
from kio.schema.errors import ErrorCode as Kios

from levada.errors import BrokerRefused
from levada.wire.codes import RETRIABLE, ErrorCode, name_of, refused


def test_the_codes_are_kafkas():
    assert {code.name: int(code) for code in ErrorCode} == {code.name.upper(): int(code) for code in Kios}


def test_retriable_is_what_kafka_calls_so():
    assert {code for code in Kios if code.retriable} == RETRIABLE


def test_a_refusal_names_its_subject_its_code_and_the_brokers_words():
    error = refused(ErrorCode.INVALID_CONFIG, "topic orders", "retention.ms=-5 is not allowed")
    assert isinstance(error, BrokerRefused)
    assert (error.code, error.name) == (40, "INVALID_CONFIG")
    assert str(error) == "topic orders: retention.ms=-5 is not allowed (INVALID_CONFIG)"


@pytest.mark.parametrize(("code", "name"), [(3, "UNKNOWN_TOPIC_OR_PARTITION"), (9999, "ERROR_9999")])
def test_a_code_has_a_name_even_when_it_is_new(code, name):
    assert name_of(code) == name
    assert name in str(refused(code, "orders-0"))
