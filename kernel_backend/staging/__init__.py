"""Launch attempts on nodes that cannot read the home directory of the service.

Files for the ranks are fetched from the service, and files that the ranks write are sent to it.
"""
