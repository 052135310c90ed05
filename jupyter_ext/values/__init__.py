"""Bring the values that jobs set into the notebook, before the first cell that reads them runs."""
