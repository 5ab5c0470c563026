"""Tools for tracing a module with torch: its state, its sizes, and the errors of exporters."""
