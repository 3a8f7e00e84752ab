"""gRPC: the services of levada.v1, one file per group of calls. Translates; decides nothing."""
