//! Trace replay of kvstore-index's policies against LRU and the optimum.
