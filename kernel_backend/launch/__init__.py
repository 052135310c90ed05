"""Launch an attempt's ranks on one node, deliver their records to the service, and end all of them together.

Instructions that the service gives in return, such as to save a checkpoint and exit, are passed on to the ranks.
"""
