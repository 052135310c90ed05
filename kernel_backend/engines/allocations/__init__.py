"""Keep allocations of an engine for searches: a holder in each runs gangs one after another, as the service orders."""
