"""The endpoints: thin, one file a noun."""
