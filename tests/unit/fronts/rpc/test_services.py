"""Every call that the protos promise is served."""

from __future__ import annotations

from levada.fronts.rpc.services import SERVICES, service_names


def test_every_call_has_a_handler() -> None:
    for service, served in SERVICES:
        assert set(served) == set(service.methods_by_name), service.full_name


def test_the_services_are_those_of_the_protos() -> None:
    assert service_names() == ["levada.v1.StreamService", "levada.v1.ClusterService"]
