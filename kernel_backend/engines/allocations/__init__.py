"""Keep allocations (such as Slurm jobs) that run several gangs of one search, one after another.

In each allocation runs a process, the holder, which starts the gangs that the service orders.
"""
