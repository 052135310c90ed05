"""The control loop: start attempts, end them, and take in what they report."""
