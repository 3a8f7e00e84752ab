"""One connection to a broker, without the socket: requests to bytes, bytes to answers, and which versions to speak.

Kafka answers in the order it was asked, so what is under way is a queue, and an answer out of turn ends the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from levada.errors import MalformedFrame, UnsupportedVersion
from levada.wire.apis import APIS, ApiKey, api_of
from levada.wire.codec import read_response, read_response_header, write_request, write_request_header
from levada.wire.codes import ErrorCode, refused
from levada.wire.framing import Framer, frame
from levada.wire.primitives import Buffer

SOFTWARE_NAME: Final = "levada"
#: Fetch answers hold at least one batch whatever its size, so this is only a guard against nonsense.
ANSWER_BYTES_MAX: Final = 1 << 30


class Offer(NamedTuple):
    """What a broker said it speaks: versions by call, and the levels of the cluster's features."""

    versions: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def best(self, api_key: int, low: int | None = None, high: int | None = None) -> int:
        """The newest version both sides speak, within these bounds."""
        api = api_of(api_key)
        low = api.min_version if low is None else max(low, api.min_version)
        high = api.max_version if high is None else min(high, api.max_version)
        if api_key not in self.versions:
            raise UnsupportedVersion(f"the broker does not know {api.name}")
        theirs_low, theirs_high = self.versions[api_key]
        version = min(high, theirs_high)
        if version < max(low, theirs_low):
            raise UnsupportedVersion(
                f"the broker speaks {api.name} {theirs_low} to {theirs_high}, and {low} to {high} are needed here"
            )
        return version


class Channel:
    """Correlation ids and framing of one connection."""

    def __init__(self, client_id: str | None = None, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self.client_id = client_id
        self._framer = Framer(answer_bytes_max)
        self._next_id = 0
        #: (correlation id, call, version) of what was asked and not yet answered, the oldest first.
        self._asked: deque[tuple[int, int, int]] = deque()

    def ask(
        self, api_key: int, version: int, body: Sequence[Buffer], *, answered: bool = True
    ) -> tuple[int, list[Buffer]]:
        """(the id its answer will have, the bytes to send). `answered=False` for what Kafka never answers: acks = 0."""
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        if answered:
            self._asked.append((correlation_id, api_key, version))
        return correlation_id, frame((write_request_header(api_key, version, correlation_id, self.client_id), *body))

    def feed(self, data: Buffer) -> Iterator[tuple[int, memoryview]]:
        """The answers that are whole now: (correlation id, body)."""
        return self._answers(self._framer.feed(data))

    def room(self) -> memoryview | None:
        """Where the rest of a large answer may be received instead of being fed; see Framer."""
        return self._framer.room()

    def filled(self, count: int) -> Iterator[tuple[int, memoryview]]:
        """So many bytes were put into the room: the answer, if it is whole now."""
        return self._answers(self._framer.filled(count))

    def _answers(self, frames: Iterator[memoryview]) -> Iterator[tuple[int, memoryview]]:
        for answer in frames:
            if not self._asked:
                raise MalformedFrame("the broker answered what nobody asked")
            expected, api_key, version = self._asked.popleft()
            correlation_id, start = read_response_header(api_key, version, answer)
            if correlation_id != expected:
                raise MalformedFrame(
                    f"the broker answered out of turn: {APIS[api_key].name} was asked as {expected}, answered {correlation_id}"
                )
            yield correlation_id, answer[start:]


#: Yields (call, version, body) and is sent the body of the answer.
Handshake = Generator[tuple[int, int, bytes], memoryview, Offer]


def handshake(software_version: str) -> Handshake:
    """What is said first on every connection: ask for versions in our newest, and again in theirs where that is older."""
    version = APIS[ApiKey.API_VERSIONS].max_version
    for _ in range(2):
        fields = {"client_software_name": SOFTWARE_NAME, "client_software_version": software_version}
        body = yield ApiKey.API_VERSIONS, version, write_request(ApiKey.API_VERSIONS, version, fields)
        # A broker that does not know our version says so in version 0, and names its own there.
        unknown = int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        answer = read_response(ApiKey.API_VERSIONS, 0 if unknown else version, body)
        versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if not unknown:
            if answer.error_code:
                raise refused(answer.error_code, "ApiVersions")
            return Offer(versions, {one.name: one.max_version_level for one in answer.finalized_features})
        version = min(version - 1, versions.get(ApiKey.API_VERSIONS, (0, 0))[1])
    raise UnsupportedVersion("the broker refuses every version of ApiVersions")
