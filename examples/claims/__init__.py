"""Parts of ../recipes_report.py."""
