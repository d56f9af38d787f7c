"""``occamid benchmark`` and ``occamid data``, found by occamid as entry points."""
