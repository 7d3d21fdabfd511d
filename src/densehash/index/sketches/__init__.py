"""What an index keeps of a row, and how rows are ranked by it."""
