"""What a run is: plain values and pure decisions. No clock, no ids, no I/O, nothing of the other rooms."""
