"""All that is known of ROCm."""
