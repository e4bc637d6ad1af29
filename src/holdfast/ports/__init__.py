"""The promises between the engine and its adapters. Protocols and the values that cross them, nothing else."""
