"""SmartSim's interface, over Phalanx: the classes for training data."""
