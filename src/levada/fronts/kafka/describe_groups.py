"""DescribeGroups, versions 0–6.

- A group that is not there is described as Dead; from version 6 on that is an error as well, GROUP_ID_NOT_FOUND.
- The protocol and the members' metadata are shown while the group is stable.
- Authorized operations (version 3 on, where asked for) are all there are: there are no access rules yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from levada.broker.groups import Described, DescribedMember, State
from levada.errors import LevadaError, UnknownGroup
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import code_of
from levada.wire.codec import Message

#: Bits of Kafka's AclOperation that apply to a group: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle(request: Message, call: Call) -> Mapping[str, Any]:
    operations = {"authorized_operations": _ALL_OPERATIONS} if request.include_authorized_operations else {}
    return {"groups": [{**_group(group_id, call), **operations} for group_id in request.groups]}


def _group(group_id: str, call: Call) -> Mapping[str, Any]:
    try:
        return _fields(call.node.groups.describe(group_id))
    except UnknownGroup as error:
        dead = {"group_id": group_id, "group_state": State.DEAD.value}
        return dead if call.version < 6 else {**dead, "error_code": code_of(error), "error_message": str(error)}
    except LevadaError as error:
        return {"group_id": group_id, "error_code": code_of(error), "error_message": str(error)}


def _fields(group: Described) -> Mapping[str, Any]:
    return {
        "error_code": 0,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [_member(member) for member in group.members],
    }


def _member(member: DescribedMember) -> Mapping[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
