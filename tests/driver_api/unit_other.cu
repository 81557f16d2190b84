// What unit_one.cu uses.
__device__ int offset_elsewhere = 7;

__device__ int square_elsewhere(int value) {
    return value * value;
}
