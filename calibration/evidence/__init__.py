"""What people already have: results of benchmarks, scrapes of a server, traces; read into one `Evidence`."""
