"""Native stream groups: who reads which partition, and where each group stands. See coordinator.py and positions.py."""

from levada.broker.streams.assignor import assign
from levada.broker.streams.coordinator import StreamGroups
from levada.broker.streams.kafka_view import KafkaView
from levada.broker.streams.kinds import Kind, Rival
from levada.broker.streams.member import Assignment, Changed, Member
from levada.broker.streams.positions import Committer, Place, Positions
from levada.broker.streams.registration import Registered
from levada.broker.streams.seeking import Edge, Shift, Target, ToOffset, ToTime
from levada.broker.streams.views import Described, DescribedMember, Listed
from levada.broker.streams.watch import TopicWatch

__all__ = [
    "Assignment",
    "Changed",
    "Committer",
    "Described",
    "DescribedMember",
    "Edge",
    "KafkaView",
    "Kind",
    "Listed",
    "Member",
    "Place",
    "Positions",
    "Registered",
    "Rival",
    "Shift",
    "StreamGroups",
    "Target",
    "ToOffset",
    "ToTime",
    "TopicWatch",
    "assign",
]
