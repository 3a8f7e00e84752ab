"""ApiVersions, versions 0–4.

- Tells which calls and versions are spoken here, and that transactions follow KIP-890 (`transaction.version`).
- A version this broker does not know is answered in version 0 with UNSUPPORTED_VERSION and the same list, so that a
  newer client can choose again.
- The answer is the same for everyone, so it is written once per version.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from levada.engine.embedded.transactions import TRANSACTION_VERSION
from levada.errors import InvalidRequest
from levada.fronts.kafka import notice
from levada.fronts.kafka.apis import offered
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, UNSUPPORTED_VERSION, code_of
from levada.wire.apis import ApiKey
from levada.wire.codec import write_response

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
#: From this version on a client says what it is.
_NAMED_FROM: Final = 3
#: Before this version a client takes no feature that begins at 0 (KAFKA-17011).
_LEVEL_0_FROM: Final = 4


async def handle(request: Any, call: Call) -> bytes:
    if call.version >= _NAMED_FROM:
        for value in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(value):
                error = InvalidRequest(f"client software {value!r}: only letters, digits, '-' and '.' are allowed")
                notice.refused(call, "ApiVersions", error)
                return _answer(call.version, code_of(error))
    return _answer(call.version, NONE)


def unsupported() -> bytes:
    """The answer to a version that is not known here, in version 0."""
    return _answer(0, UNSUPPORTED_VERSION)


@functools.cache
def _answer(version: int, error_code: int) -> bytes:
    features = {"transaction.version": (0, TRANSACTION_VERSION)}
    lowest = 0 if version >= _LEVEL_0_FROM else 1
    fields = {
        "error_code": error_code,
        "api_keys": [
            {"api_key": each.api.key, "min_version": each.advertised_from, "max_version": each.api.max_version}
            for each in offered().values()
        ],
        "supported_features": [
            {"name": name, "min_version": max(low, lowest), "max_version": high}
            for name, (low, high) in features.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": high, "max_version_level": high} for name, (_, high) in features.items()
        ],
    }
    return write_response(ApiKey.API_VERSIONS, version, fields)
