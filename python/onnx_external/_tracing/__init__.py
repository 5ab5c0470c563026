"""Tools for tracing a module with torch: its state, its sizes, and what an exporter says of it."""
