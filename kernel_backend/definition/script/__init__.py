"""Read programs that train in a loop of their own, as they stand."""
