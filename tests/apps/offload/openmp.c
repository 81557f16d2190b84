/* OpenMP: teams, reductions, scheduling, critical sections, data regions, tasks and the C library on the device. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "check.h"

enum { n = 1000 };

#pragma omp declare target
int counter;
static int fibonacci(int i) {
    return i < 2 ? i : fibonacci(i - 1) + fibonacci(i - 2);
}
#pragma omp end declare target

static void loops(double* a, double* b) {
    double sum = 0, expected = 0;
#pragma omp target teams distribute parallel for map(tofrom : a [0:n]) map(to : b [0:n]) reduction(+ : sum)
    for (int i = 0; i < n; ++i) {
        a[i] += b[i] * sqrt(b[i]);
        sum += a[i];
    }
    for (int i = 0; i < n; ++i) {
        double right = i + 2.0 * i * sqrt(2.0 * i);
        EXPECT(fabs(a[i] - right) <= 1e-9 * right);
        expected += right;
    }
    EXPECT(fabs(sum - expected) <= 1e-9 * expected);

    int values[10];
#pragma omp target parallel for map(from : values) num_threads(8) schedule(dynamic, 1)
    for (int i = 0; i < 10; ++i) values[i] = fibonacci(i);
    for (int i = 0; i < 10; ++i) EXPECT(values[i] == fibonacci(i));

    float halves[64];
#pragma omp target map(from : halves)
#pragma omp simd
    for (int i = 0; i < 64; ++i) halves[i] = 0.5f * (float)i;
    EXPECT(halves[63] == 31.5f);
}

static void threads(void) {
    int together = 0, per_team = 0, sum = 0;
#pragma omp target teams map(tofrom : together, per_team) num_teams(4) thread_limit(64)
#pragma omp parallel
    {
#pragma omp atomic
        ++together;
#pragma omp atomic write
        per_team = omp_get_num_threads();
    }
    EXPECT(per_team > 1 && together == 4 * per_team);
#pragma omp target map(tofrom : sum)
#pragma omp parallel num_threads(8)
    {
#pragma omp critical
        sum += omp_get_thread_num();
#pragma omp barrier
#pragma omp single
        sum += 1000;
    }
    EXPECT(sum == 1028);
}

static void memory(double* a, double* b) {
#pragma omp target enter data map(to : a [0:n])
#pragma omp target
    for (int i = 0; i < n; ++i) a[i] = 3 * i;
    EXPECT(a[9] != 27);
#pragma omp target update from(a [0:n])
    EXPECT(a[9] == 27);
#pragma omp target exit data map(delete : a [0:n])

    int device = omp_get_default_device(), host = omp_get_initial_device();
    double* on_device = omp_target_alloc(n * sizeof(double), device);
    omp_target_memcpy(on_device, b, n * sizeof(double), 0, 0, device, host);
#pragma omp target is_device_ptr(on_device)
    for (int i = 0; i < n; ++i) on_device[i] *= 3;
    omp_target_memcpy(a, on_device, n * sizeof(double), 0, 0, host, device);
    omp_target_free(on_device, device);
    EXPECT(a[10] == 60);

    counter = 5;
#pragma omp target update to(counter)
#pragma omp target
    counter += 37;
#pragma omp target update from(counter)
    EXPECT(counter == 42);
}

static void tasks(void) {
    int value = 1;
#pragma omp target nowait depend(out : value) map(tofrom : value)
    value += 1;
#pragma omp target nowait depend(inout : value) map(tofrom : value)
    value *= 10;
#pragma omp taskwait
    EXPECT(value == 20);
}

static void library(void) {
    int sum = 0;
    double on_device = 0;
#pragma omp target map(from : sum, on_device)
    {
        int* values = malloc(100 * sizeof(int));
        sum = 0;
        for (int i = 0; i < 100; ++i) values[i] = i;
        for (int i = 0; i < 100; ++i) sum += values[i];
        free(values);
        printf("printed by the device: %d\n", sum);
        on_device = sin(1.0) + exp(2.0) + pow(3.0, 1.5) + log(5.0) + tgamma(4.5) + erf(0.3);
    }
    EXPECT(sum == 4950);
    EXPECT(fabs(on_device - (sin(1.0) + exp(2.0) + pow(3.0, 1.5) + log(5.0) + tgamma(4.5) + erf(0.3))) < 1e-12);
}

int main(void) {
    static double a[n], b[n];
    for (int i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;
    int on_host = 1;
#pragma omp target map(from : on_host)
    on_host = omp_is_initial_device();
    EXPECT(!on_host);
    loops(a, b);
    threads();
    memory(a, b);
    tasks();
    library();
    return finish();
}
