"""The report of an identification: numbers first (JSON-able), then one page that shows them.

``content`` computes, ``render`` writes the HTML and reads nothing but what ``content`` returned.
"""

from occamid.reporting.content import content
from occamid.reporting.page import render

__all__ = ["content", "render"]
