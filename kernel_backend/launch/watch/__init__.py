"""Watch ranks while they run: heartbeats, hangs, stack traces, and lines in their logs."""
