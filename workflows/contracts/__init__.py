"""What is written into histories and crosses every border: models and names.

Every model here may be read back years later by newer code, so new fields get defaults, readers
ignore what they do not know, and no enum member is ever taken away.
"""
