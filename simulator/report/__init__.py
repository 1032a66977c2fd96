"""What a person and other programs read of a result: table, files, plots."""
