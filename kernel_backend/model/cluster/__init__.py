"""Records of a shared cluster: users, quotas, accounts, usage and notebook servers."""
