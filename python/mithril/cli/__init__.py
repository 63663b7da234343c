"""The command `mithril`; each subcommand is a module with ``run(arguments) -> exit code``."""
