"""What a launcher sees of its ranks while they run: whether they get on, where they stand, what their logs say."""
