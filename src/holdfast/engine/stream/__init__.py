"""The outward stream of a run: written as a numbered log, followed by any number of readers."""
