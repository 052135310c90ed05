"""The service's side of Unix accounts: it asks agents, and believes nothing that they answer."""
