"""Explain why two experiments gave different results, by comparing their records."""
