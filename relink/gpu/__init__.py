"""What the readers of device code share: words for coverage, a walk of directories, a host's ELF file, MessagePack."""
