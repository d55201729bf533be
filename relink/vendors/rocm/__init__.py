"""All that is known of ROCm: its releases, components and sonames, what its libraries dlopen, which packages have them."""
