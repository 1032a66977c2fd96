"""Work of an engine step, and its seconds and bytes on a device. Pure arithmetic."""
