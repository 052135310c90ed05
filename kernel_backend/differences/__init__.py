"""Explain why two experiments gave different results: pure functions of their records."""
