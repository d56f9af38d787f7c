"""The report of an identification: numbers first (JSON-able), then one page that shows them.

``content`` computes, ``render`` writes the HTML, ``save_figures`` the pictures for papers; the
last two read nothing but what ``content`` returned.
"""

from occamid.reporting.content import content
from occamid.reporting.page import render
from occamid.reporting.static import save_figures

__all__ = ["content", "render", "save_figures"]
