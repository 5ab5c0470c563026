"""Provides tools for tracing a module with torch: its state, its sizes and exporters' errors."""
