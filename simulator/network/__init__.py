"""What travels between devices: what it costs alone, and how it shares links with everything else."""
