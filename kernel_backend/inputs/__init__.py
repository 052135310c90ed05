"""Bring remote data near the slots: each object once per node, and folders of hard links that trainings read."""

from __future__ import annotations
