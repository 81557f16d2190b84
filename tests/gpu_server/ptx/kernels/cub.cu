// NVIDIA's own block algorithms: they use instructions that hand-written kernels seldom do.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

extern "C" __global__ void cub_sort(unsigned* keys, int* values) {
    using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
    __shared__ typename Sort::TempStorage temp;
    unsigned k[4];
    int v[4];
    for (int i = 0; i < 4; ++i) k[i] = keys[threadIdx.x * 4 + i], v[i] = values[threadIdx.x * 4 + i];
    Sort(temp).Sort(k, v);
    for (int i = 0; i < 4; ++i) keys[threadIdx.x * 4 + i] = k[i], values[threadIdx.x * 4 + i] = v[i];
}

extern "C" __global__ void cub_scan(const long long* in, long long* out, long long* sum) {
    using Scan = cub::BlockScan<long long, 128>;
    using Reduce = cub::BlockReduce<long long, 128>;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename Reduce::TempStorage reduce;
    long long v = in[threadIdx.x], r;
    Scan(scan).InclusiveSum(v, r);
    out[threadIdx.x] = r;
    r = Reduce(reduce).Sum(v);
    if (threadIdx.x == 0) *sum = r;
}
