"""What tuners are compared on: scenarios of the simulated cluster, drawn from families or published."""
