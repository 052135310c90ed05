"""Simulate a search by discrete events, on recorded or synthetic learning curves."""
