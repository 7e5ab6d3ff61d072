"""Export detectors whose heads look at regions: proposals of an RPN, or learned ones; their masks, and grids of points."""
