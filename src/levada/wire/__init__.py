"""The Kafka protocol, from both ends. No front and no engine in here: bytes, messages, and two small clients.

apis            the calls, their keys and versions
codec           any message ⇄ bytes, by functions compiled from `schemas/`     (schema · reader · writer · source · message)
produce, fetch (+ fetch_request), metadata, list_offsets      the hot messages by hand      (primitives · endpoints)
framing         frames out of a byte stream
channel         one connection without its socket: correlation ids, versions
effects, calls/ what can be asked of a cluster, written once as steps       (cluster: what is remembered · retry · answers · codes)
client          the steps awaited, for asyncio
blocking        the same steps on plain sockets
"""
