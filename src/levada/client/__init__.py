"""The Python client: levada.connect for code that waits, levada.aio for code that awaits. One implementation, over gRPC."""
