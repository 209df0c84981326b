"""What workflows reach the outside through: attempts, planning, records."""
