"""What we ship for tests, ours and yours: fakes, servers on the real wires, and contract suites."""
