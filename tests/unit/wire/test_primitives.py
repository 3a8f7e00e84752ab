import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.writers import write_unsigned_varint

from levada.errors import MalformedFrame
from levada.wire.primitives import read_uvarint, uvarint


@given(st.integers(0, 2**32 - 1))
def test_varints_are_kios_and_come_back(value):
    buffer = io.BytesIO()
    write_unsigned_varint(buffer, value)
    assert uvarint(value) == buffer.getvalue()
    assert read_uvarint(uvarint(value) + b"\xff", 0) == (value, len(uvarint(value)))


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"])
def test_a_varint_beyond_32_bits_is_malformed(data):
    with pytest.raises(MalformedFrame, match="32 bits"):
        read_uvarint(data, 0)
