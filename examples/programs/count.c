/* A library as a program ships it: it asks HIP for the number of GPUs. */
int hipGetDeviceCount(int *count);
int count_gpus(void) { int count; return hipGetDeviceCount(&count) ? -1 : count; }
