"""What every room uses: checks of arguments, files, logs, and what marks public calls."""
