"""Temporal: the binary, the embedded server and its configuration, and connections to any server."""
