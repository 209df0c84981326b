"""Pure rules. Time is always an argument; nothing here reads a clock, randomness or the environment."""
