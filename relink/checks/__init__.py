"""What is judged beside linking: GPU coverage and runtime, and the machine."""
