// One of two units that are linked by the driver: unit_other.cu.
extern __device__ int square_elsewhere(int value);
extern __device__ int offset_elsewhere;

extern "C" __global__ void call_other_unit(int* out, int value) {
    *out = square_elsewhere(value) + offset_elsewhere;
}
