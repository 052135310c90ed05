"""Make curves of what a program says and computes while it trains, without a call of Daylight's."""
