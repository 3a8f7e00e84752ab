"""The package levada.v1: the .proto files, and the code that `make proto` generates from them."""
