"""Benchmarks: paired ratios to what stands next to each figure."""
