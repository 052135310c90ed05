"""Store webhooks, and the notices about experiments that wait to be delivered to them."""
