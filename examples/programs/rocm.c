/* A stand-in for ROCm's HIP runtime: it has one GPU. */
int hipGetDeviceCount(int *count) { *count = 1; return 0; }
