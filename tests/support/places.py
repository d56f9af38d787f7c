"""Folders of the checkout."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".programs"  # compiled programs, kept between runs
