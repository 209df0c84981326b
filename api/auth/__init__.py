"""Who is calling: bearer tokens, the keys that verify them, and the scopes they carry."""
