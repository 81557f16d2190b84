/* What the programs here share: each compares what the GPU made with what the CPU makes of the same numbers. */
#pragma once
#include <stdio.h>

static int compared, wrong;

#define EXPECT(condition)                                            \
    do {                                                             \
        ++compared;                                                  \
        if (!(condition)) {                                          \
            ++wrong;                                                 \
            printf("line %d: not true: %s\n", __LINE__, #condition); \
        }                                                            \
    } while (0)

static int finish(void) {
    printf(compared > 0 && wrong == 0 ? "PASS\n" : "FAIL\n");
    return compared > 0 && wrong == 0 ? 0 : 1;
}
