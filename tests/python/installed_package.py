"""Writes what an installed package leaves beside its modules."""

from pathlib import Path


def write_entry_points(folder: Path, package: str, group: str, *points: str) -> None:
    """Adds the metadata of a package, which offers `points` (`name = module:attribute`)."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *points]) + "\n")
