"""Explain why two experiments gave different results, with pure functions of their records."""
