// Thrust (and CUB under it) as programs use them: sort keys with their values, reduce, inclusive scan.
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <numeric>

#include "check.hpp"

int main() {
    const int n = 20'000;
    check::Random random;
    std::vector<int> keys(n), order(n), sums(n);
    for (int& key : keys) key = int(random.bits() % 5000) - 2500;
    std::iota(order.begin(), order.end(), 0);

    thrust::device_vector<int> device_keys(keys.begin(), keys.end()), device_order(order.begin(), order.end());
    int total = thrust::reduce(device_keys.begin(), device_keys.end());
    EXPECT(total == std::accumulate(keys.begin(), keys.end(), 0));

    thrust::device_vector<int> device_sums(n);
    thrust::inclusive_scan(device_keys.begin(), device_keys.end(), device_sums.begin());
    std::partial_sum(keys.begin(), keys.end(), sums.begin());
    std::vector<int> got(n);
    thrust::copy(device_sums.begin(), device_sums.end(), got.begin());
    EXPECT_EQUAL(got, sums);

    thrust::stable_sort_by_key(device_keys.begin(), device_keys.end(), device_order.begin());
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    thrust::copy(device_order.begin(), device_order.end(), got.begin());
    EXPECT_EQUAL(got, order);
    return check::finish();
}
