// What the tests look for in the images: three kernels whose parameters have holes, none, and many bytes.
struct Mixed {
    char letter;
    double number;
};
struct Large {
    int words[2048];  // 8 KiB: beyond the old limit of 4 KiB, so described by the newer kind of record
};

extern "C" __global__ void holes(char first, double second, Mixed third, short last, int* out) {
    *out = static_cast<int>(first + second + third.letter + third.number + last);
}
extern "C" __global__ void no_parameters() {}
extern "C" __global__ void large(int* out, Large large) {
    *out = large.words[threadIdx.x];
}
