"""What ld.so does, without running anything; knows no ROCm."""
