"""What a call on jobs does: creation, changes by update, reads, and the answers' shapes."""
