/* OpenACC: gangs, workers and vectors, reductions, asynchronous queues, data regions and properties. */
#include <math.h>
#include <openacc.h>
#include <string.h>

#include "check.h"

enum { n = 4096, side = 64 };

#pragma acc routine seq
static float square_plus_one(float x) {
    return x * x + 1;
}

#pragma acc routine vector
static int sum_of(const int* values, int count) {
    int sum = 0;
#pragma acc loop vector reduction(+ : sum)
    for (int i = 0; i < count; ++i) sum += values[i];
    return sum;
}

static float a[n], b[n], left[side][side], right[side][side], product[side][side];

static void loops(void) {
#pragma acc parallel loop gang vector copyin(a) copyout(b)
    for (int i = 0; i < n; ++i) b[i] = square_plus_one(a[i]);
    for (int i = 0; i < n; ++i) EXPECT(b[i] == square_plus_one(a[i]));

    double sum = 0, expected = 0;
#pragma acc parallel loop copyin(b) reduction(+ : sum) num_gangs(8) num_workers(4) vector_length(32)
    for (int i = 0; i < n; ++i) sum += b[i];
    for (int i = 0; i < n; ++i) expected += b[i];
    EXPECT(fabs(sum - expected) <= 1e-9 * expected);

    int values[1000], total = 0, count = 0;
    for (int i = 0; i < 1000; ++i) values[i] = i;
#pragma acc parallel copyin(values) copy(total) vector_length(32)
    total = sum_of(values, 1000);
    EXPECT(total == 499500);
#pragma acc parallel loop copy(count)
    for (int i = 0; i < 500; ++i) {
#pragma acc atomic update
        ++count;
    }
    EXPECT(count == 500);
}

static void matrices(void) {
    for (int i = 0; i < side; ++i)
        for (int j = 0; j < side; ++j) left[i][j] = (float)(i + j), right[i][j] = (float)(i - j);
#pragma acc data copyin(left, right) copyout(product)
#pragma acc kernels
#pragma acc loop independent gang
    for (int i = 0; i < side; ++i)
#pragma acc loop independent worker
        for (int j = 0; j < side; ++j) {
            float sum = 0;
#pragma acc loop vector reduction(+ : sum)
            for (int k = 0; k < side; ++k) sum += left[i][k] * right[k][j];
            product[i][j] = sum;
        }
    for (int i = 0; i < side; ++i)
        for (int j = 0; j < side; ++j) {
            float sum = 0;
            for (int k = 0; k < side; ++k) sum += left[i][k] * right[k][j];
            EXPECT(product[i][j] == sum);  // whole numbers below 2^24
        }
}

static void queues(void) {
#pragma acc enter data copyin(a) create(b)
    for (int quarter = 0; quarter < 4; ++quarter) {
#pragma acc parallel loop async(quarter) present(a, b)
        for (int i = quarter * n / 4; i < (quarter + 1) * n / 4; ++i) b[i] = 2 * a[i];
#pragma acc update self(b [quarter * n / 4:n / 4]) async(quarter)
    }
#pragma acc wait
    for (int i = 0; i < n; ++i) EXPECT(b[i] == 2 * a[i]);
#pragma acc exit data delete (a, b)
}

int main(void) {
    for (int i = 0; i < n; ++i) a[i] = (float)i;
    EXPECT(acc_get_device_type() == acc_device_nvidia && acc_get_num_devices(acc_device_nvidia) > 0);
    EXPECT(strstr(acc_get_property_string(0, acc_device_nvidia, acc_property_name), "NVIDIA"));
    size_t all = acc_get_property(0, acc_device_nvidia, acc_property_memory);
    size_t unused = acc_get_property(0, acc_device_nvidia, acc_property_free_memory);
    EXPECT(unused > 0 && unused <= all);
    loops();
    matrices();
    queues();
    float* on_device = acc_malloc(sizeof a);
    acc_memcpy_to_device(on_device, a, sizeof a);
#pragma acc parallel loop deviceptr(on_device)
    for (int i = 0; i < n; ++i) on_device[i] = sqrtf(on_device[i]);
    acc_memcpy_from_device(b, on_device, sizeof b);
    acc_free(on_device);
    EXPECT(b[100] == 10);
    acc_shutdown(acc_device_nvidia);
    return finish();
}
