/* A program that prints how many GPUs there are. */
#include <stdio.h>
int count_gpus(void);
int main(void) { printf("%d GPU\n", count_gpus()); return 0; }
