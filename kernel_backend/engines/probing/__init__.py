"""Check the nodes of a pool by probe programs on them: send orders, collect answers, and derive findings.

It is for engines whose gangs run on other machines than the service.
"""
