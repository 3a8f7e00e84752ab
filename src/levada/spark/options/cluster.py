"""Where the brokers are and how they are talked to: `bootstrap`, and Kafka's own settings under `kafka.`.

TLS is told in Java's words, with PEM files: `kafka.security.protocol=SSL`, `kafka.ssl.truststore.location`,
`kafka.ssl.keystore.location`, `kafka.ssl.key.password`, and `kafka.ssl.endpoint.identification.algorithm`, empty for any name.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from levada.spark.options.reading import Given, WrongOption
from levada.wire.blocking import BlockingClient
from levada.wire.cluster import parse_bootstrap

#: Kafka's name → what BlockingClient calls it.
_TIMES: Final[Mapping[str, str]] = {
    "default.api.timeout.ms": "timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "backoff_ms",
    "retry.backoff.max.ms": "backoff_ms_max",
}
#: How a Java client does its work. Ours does it in its own way, and what is read and written is the same: taken, and nothing comes of it.
_HOW_JAVA_WORKS: Final = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL")


@dataclass(frozen=True)
class Tls:
    """Whom to believe, and who we are."""

    #: A PEM file of certificates; None for what the system trusts.
    trusted: str | None = None
    #: A PEM file with our key and our certificates.
    own: str | None = None
    password: str | None = field(default=None, repr=False)
    check_name: bool = True

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        context.check_hostname = self.check_name
        if self.own is not None:
            context.load_cert_chain(self.own, password=self.password)
        return context


@dataclass(frozen=True)
class Cluster:
    """A cluster, and how it is talked to. It can be pickled."""

    #: What BlockingClient takes, but for TLS.
    plain: Mapping[str, Any]
    tls: Tls | None = None

    @classmethod
    def of(cls, given: Given, *, client_id: str = "levada-spark") -> Self:
        """Take the options that are about this. WrongOption."""
        address = given.required("bootstrap", "kafka.bootstrap.servers", allowed=_WHERE)
        try:
            parse_bootstrap(address)
        except ValueError as error:
            raise WrongOption("bootstrap", address, f"host:port, or several with commas, is ({error})") from None
        plain: dict[str, Any] = {"bootstrap": address, "client_id": given.text("kafka.client.id", client_id)}
        for name, ours in _TIMES.items():
            value = given.number(f"kafka.{name}", low=1, high=2**31 - 1)
            if value is not None:
                plain[ours] = value
        for name in _HOW_JAVA_WORKS:
            given.text(f"kafka.{name}")
        return cls(plain, _tls(given))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of BlockingClient by name."""
        return {**self.plain, "ssl": self.tls.context()} if self.tls else dict(self.plain)

    @property
    def bootstrap(self) -> str:
        return str(self.plain["bootstrap"])

    def client(self) -> BlockingClient:
        """A client that has not connected yet: its first call does. The caller closes it."""
        return BlockingClient(**self.settings)


_WHERE: Final = (
    "host:port of a broker is needed, or several with commas. Spark does not keep the options of CREATE TABLE … USING levada: "
    "use CREATE TEMPORARY VIEW … USING levada OPTIONS (…), or SELECT … WITH (…)"
)


def _tls(given: Given) -> Tls | None:
    for name, value in given.with_prefix("kafka.sasl.").items():
        raise WrongOption(f"kafka.sasl.{name}", "…" if value else "", "SASL is not spoken; TLS with certificates is")
    protocol = given.choice("kafka.security.protocol", _PROTOCOLS, "PLAINTEXT")
    for store in ("truststore", "keystore"):
        given.choice(f"kafka.ssl.{store}.type", ("PEM",), "PEM")
    tls = Tls(
        given.text("kafka.ssl.truststore.location"),
        given.text("kafka.ssl.keystore.location"),
        given.text("kafka.ssl.key.password"),
        _checks_names(given),
    )
    if protocol != "SSL":
        return None
    try:
        tls.context()
    except (OSError, ValueError) as error:
        raise WrongOption(
            "kafka.ssl.truststore.location and kafka.ssl.keystore.location",
            f"{tls.trusted}, {tls.own}",
            f"PEM files that can be read are ({error})",
        ) from None
    return tls


def _checks_names(given: Given) -> bool:
    name = "kafka.ssl.endpoint.identification.algorithm"
    given.choice(name, ("https",), "https")
    # Given, but empty, is Kafka's way to say: any name will do.
    return given.with_prefix(name).get("", "https").strip() != ""
