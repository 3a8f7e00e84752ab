"""What a transactional producer is told when something is refused.

PRODUCER_FENCED is newer than some versions of these calls, which say INVALID_PRODUCER_EPOCH instead. A disk that is full is
told as COORDINATOR_NOT_AVAILABLE, which a producer tries again by itself.
"""

from __future__ import annotations

from levada.errors import CoordinatorUnavailable, InvalidProducerEpoch, LevadaError, ProducerFenced, StorageError
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import KAFKA_CODE, code_of
from levada.wire.apis import APIS


def transaction_code(call: Call, error: LevadaError, *, fenced_from: int) -> int:
    """The code of the answer, and one log line. `fenced_from` is the first version that knows PRODUCER_FENCED."""
    notice.refused(call, APIS[call.api_key].name, error)
    if isinstance(error, StorageError):
        return KAFKA_CODE[CoordinatorUnavailable]
    if isinstance(error, ProducerFenced) and call.version < fenced_from:
        return KAFKA_CODE[InvalidProducerEpoch]
    return code_of(error)
