"""A proxy that knows nothing of what it carries, and cuts connections in the middle of it."""

from __future__ import annotations

import socket

from support.proxy import Link, Proxy


class TcpProxy(Proxy):
    """`cut_answers` resets connections after half of what the broker sent was passed on: stored, and not known to be."""

    def cut_answers(self, times: int, *, every: int = 1) -> None:
        self.cut_produce_answers(times, every=every)

    def link(self, client: socket.socket, broker: socket.socket) -> Link:
        return TcpLink(self, client, broker)


class TcpLink(Link):
    def requests(self) -> None:
        while data := self.client.recv(65_536):
            self.broker.sendall(data)

    def answers(self) -> None:
        while data := self.broker.recv(65_536):
            if self.proxy.should_cut():
                self.client.sendall(data[: len(data) // 2])
                return
            self.client.sendall(data)
