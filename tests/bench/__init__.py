"""Benchmarks: each starts an installation of its own and prints a table; none of them is a timed test."""
