"""Records of a shared cluster: people, quotas, accounts, usage and notebook servers."""
