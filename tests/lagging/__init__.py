"""A device that lags behind its host, for tests: what a GPU does to a measurement, shown without one."""
