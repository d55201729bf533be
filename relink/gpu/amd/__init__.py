"""AMD's GPUs: the forms of their device code, which code runs on which, and what HIP's runtime and the kernel driver say."""
