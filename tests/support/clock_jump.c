// A wall clock that jumps: preloaded, it adds to the calendar's time as many seconds as the file TNR_CLOCK_JUMP says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* jump;

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("TNR_CLOCK_JUMP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void* found = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) jump = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && jump && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *jump;
    return code;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
    (void)zone;
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t* told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
