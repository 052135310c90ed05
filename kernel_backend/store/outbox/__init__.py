"""Store of webhooks, and of the notices that wait to be delivered to them."""
