"""Tools for tracing a module with torch: its state, its sizes, and errors of exporters."""
