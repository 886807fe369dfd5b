"""The helpers of AML-IP programs: handlers to wait with."""
