"""Levada's own API under the same load as NATS JetStream and Redis Streams, measured the same way."""
