"""Launch the ranks of an attempt on one node, deliver their records to the service, and end all of them together.

The service's answers contain instructions, such as to save a checkpoint and exit, which are passed on to the ranks.
"""
