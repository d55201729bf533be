"""What is known of each vendor of GPU wheels."""
