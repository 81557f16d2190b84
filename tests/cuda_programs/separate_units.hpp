// What separate_units_other.cu offers to separate_units.cu.
#pragma once

extern __device__ int calls_elsewhere;
extern __constant__ int weights_elsewhere[4];

__device__ int transform_elsewhere(int value);
void launch_elsewhere(int* out, int n);
