"""The report: numbers first (JSON-able), then one page that shows them; and run folders."""
