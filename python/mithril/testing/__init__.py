"""Checking models and backends against an independent oracle."""
