"""Looking inside: what runs and why, how much memory it takes, how long; tables and reports."""
