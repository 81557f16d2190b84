// Kernels and the program talk through mapped and managed memory while a kernel runs: flags, answers, data before flags in both
// directions, counters, and memory that one side fills while the other polls; in whole pages, and in registered words
// whose pages have something else of the program in them.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <thread>

#include "check.hpp"

constexpr int words = 16'384;  // 16 pages
constexpr int page_words = 1024;

// Answers a request with the sum of three words that were written before it; ends at a negative one.
__global__ void answer(volatile int* request, const volatile int* words_of_it, volatile int* sum, volatile int* done) {
    for (int last = 0;;) {
        int now = last;
        while (now == last) now = *request;
        if (now < 0) return;
        __threadfence_system();
        *sum = words_of_it[0] + words_of_it[1] + words_of_it[2];
        __threadfence_system();
        *done = last = now;
    }
}

// Fills a page for each ticket, says so in another one, and goes on when it is told that the page was read.
__global__ void produce(volatile int* pages, volatile int* filled, const volatile int* read, int count) {
    for (int ticket = 1; ticket <= count; ++ticket) {
        for (int i = threadIdx.x; i < page_words; i += blockDim.x) pages[i] = ticket * 10'000 + i;
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) {
            *filled = ticket;
            while (*read != ticket) {
            }
        }
        __syncthreads();
    }
}

__global__ void count_up(volatile int* counter, const volatile int* stop) {
    for (int i = 1; *stop == 0; ++i) *counter = i;
}

// As benchmarks hold up a stream until they have put all into it. Gives up after a while, and says so.
__global__ void wait_for_release(const volatile int* released, volatile int* gave_up, long long patience) {
    const long long begun = clock64();
    while (*released == 0 && (patience == 0 || clock64() - begun < patience)) {
    }
    *gave_up = *released == 0 ? 1 : 2;
}

// Says that it has begun, and writes a word to each page once it is told to.
__global__ void write_last(volatile int* pages, int count, int value) {
    pages[0] = value;
    while (pages[1] != value) {
    }
    for (int i = 0; i < count; ++i) pages[i * page_words + 2] = value;
}

void take_a_nap() {
    const timespec nap{0, 100'000};
    nanosleep(&nap, nullptr);
}

// Where `request`, its words, `sum` and `done` are decides which pages they are in, and in which order of addresses.
void talk(int* here, int* there, int request, int data, int sum, int done, int rounds) {
    volatile int* memory = here;
    memory[request] = 0;
    memory[done] = 0;
    answer<<<1, 1>>>(there + request, there + data, there + sum, there + done);
    CUDA_OK(cudaGetLastError());
    int wrong = 0;
    const auto begun = std::chrono::steady_clock::now();
    for (int round = 1; round <= rounds; ++round) {
        for (int i = 0; i < 3; ++i) memory[data + i] = round * (i + 1);
        memory[request] = round;
        while (memory[done] != round) {
        }
        wrong += memory[sum] != round * 6;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    std::printf("a request and its answer: %.0f us\n", took.count() / rounds);
    memory[request] = -1;
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(wrong == 0);
    EXPECT(memory[sum] == rounds * 6);
}

void exchange_pages(int* here, int* there, int rounds) {
    volatile int* memory = here;
    const int filled = 5 * page_words, read = 7 * page_words + 3;
    memory[filled] = memory[read] = 0;
    produce<<<1, 64>>>(there, there + filled, there + read, rounds);
    CUDA_OK(cudaGetLastError());
    long wrong = 0;
    for (int ticket = 1; ticket <= rounds; ++ticket) {
        while (memory[filled] != ticket) {
        }
        for (int i = 0; i < page_words; ++i) wrong += memory[i] != ticket * 10'000 + i;
        memory[read] = ticket;
    }
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(wrong == 0);
}

// The counter never goes backwards, and memory beside it that the program fills meanwhile arrives whole.
void watch_a_counter(int* here, int* there) {
    volatile int* memory = here;
    const int counter = 0, stop = 1;
    memory[counter] = memory[stop] = 0;
    count_up<<<1, 1>>>(there + counter, there + stop);
    CUDA_OK(cudaGetLastError());
    std::thread filler([&] {
        for (int i = page_words; i < words; ++i) memory[i] = i * 3;
    });
    int last = 0, steps = 0, backwards = 0;
    while (steps < 20) {
        const int now = memory[counter];
        backwards += now < last;
        steps += now > last;
        last = now;
        take_a_nap();
    }
    filler.join();
    memory[stop] = 1;
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(backwards == 0);
    EXPECT(memory[counter] >= last);
    std::vector<int> seen(words);
    int* copy = nullptr;
    CUDA_OK(cudaMalloc(&copy, words * sizeof(int)));
    CUDA_OK(cudaMemcpy(copy, there, words * sizeof(int), cudaMemcpyDeviceToDevice));
    CUDA_OK(cudaMemcpy(seen.data(), copy, words * sizeof(int), cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(copy));
    long wrong = 0;
    for (int i = page_words; i < words; ++i) wrong += seen[i] != i * 3;
    EXPECT(wrong == 0);
}

// The program has the pages, too, when the kernel writes there last: whoever has waited for it sees that at once.
void see_last_words(int* here, int* there) {
    volatile int* memory = here;
    constexpr int pages = 4, rounds = 12;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaEventCreate(&event));
    memory[0] = memory[1] = 0;
    int wrong = 0;
    for (int round = 1; round <= rounds; ++round) {
        write_last<<<1, 1, 0, stream>>>(there, pages, round);
        CUDA_OK(cudaGetLastError());
        CUDA_OK(cudaEventRecord(event, stream));
        while (memory[0] != round) {
        }
        for (int i = 0; i < pages; ++i) wrong += memory[i * page_words + 2] == round;
        memory[1] = round;
        if (round % 4 == 0) CUDA_OK(cudaStreamSynchronize(stream));
        if (round % 4 == 1) CUDA_OK(cudaEventSynchronize(event));
        if (round % 4 == 2) CUDA_OK(cudaDeviceSynchronize());
        while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        }
        for (int i = 0; i < pages; ++i) wrong += memory[i * page_words + 2] != round;
    }
    EXPECT(wrong == 0);
    CUDA_OK(cudaEventDestroy(event));
    CUDA_OK(cudaStreamDestroy(stream));
}

void use(int* here, int* there) {
    talk(here, there, 0, 1, 16, 17, 30);                                       // a page: the flag before its data
    talk(here, there, 9, 2, 5, 0, 30);                                         // behind it
    talk(here, there, 3 * page_words, 7, 2 * page_words, 9 * page_words, 30);  // each in a page of its own
    exchange_pages(here, there, 20);
    watch_a_counter(here, there);
    see_last_words(here, there);
}

// The ends of memory that is not made of whole pages. There words come in the order of their addresses.
void use_ends(int* here, int* there) {
    const int page = 3 * page_words, last = words - 1;
    talk(here, there, 3, 0, 16, 17, 20);                 // in one end: the flag behind its data
    talk(here, there, 0, page, page + 9, last, 20);      // flags in the ends, data in a page
    talk(here, there, page + 5, 4, 8, page + 1025, 20);  // and the other way around
    exchange_pages(here, there, 10);
    watch_a_counter(here, there);
    see_last_words(here, there);
}

// Nothing beside the words changes, and what the program does there meanwhile stays.
void use_words(int* released, int* gave_up, volatile int* beside) {
    int *released_there = nullptr, *gave_up_there = nullptr;
    CUDA_OK(cudaHostRegister(released, sizeof(int), cudaHostRegisterMapped));
    CUDA_OK(cudaHostRegister(gave_up, sizeof(int), cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer(&released_there, released, 0));
    CUDA_OK(cudaHostGetDevicePointer(&gave_up_there, gave_up, 0));
    volatile int *release = released, *answer = gave_up;
    *beside = 0;
    for (int round = 0; round < 4; ++round) {
        const bool is_released = round < 3;
        *release = *answer = 0;
        wait_for_release<<<1, 1>>>(released_there, gave_up_there, is_released ? 0 : 1000);
        CUDA_OK(cudaGetLastError());
        if (round == 1) take_a_nap();
        *release = is_released;
        for (int i = 0; round > 0 && *answer == 0; ++i) *beside = *beside + 1, take_a_nap();
        const int seen = *beside;
        CUDA_OK(cudaDeviceSynchronize());
        EXPECT(*answer == (is_released ? 2 : 1));
        EXPECT(*beside == seen);
    }
    CUDA_OK(cudaHostUnregister(released));
    CUDA_OK(cudaHostUnregister(gave_up));
}

__managed__ int request_of_all, words_of_all[3], sum_of_all, done_of_all;

__global__ void answer_in_variables() {
    volatile int* request = &request_of_all;
    while (*request == 0) {
    }
    __threadfence_system();
    *(volatile int*)&sum_of_all = words_of_all[0] + words_of_all[1] + words_of_all[2];
    __threadfence_system();
    *(volatile int*)&done_of_all = 1;
    while (*request == 1) {
    }
}

void use_variables() {
    volatile int *request = &request_of_all, *sum = &sum_of_all, *done = &done_of_all;
    answer_in_variables<<<1, 1>>>();
    CUDA_OK(cudaGetLastError());
    for (int i = 0; i < 3; ++i) words_of_all[i] = i + 5;
    std::atomic_thread_fence(std::memory_order_release);
    *request = 1;
    while (*done == 0) {
    }
    EXPECT(*sum == 18);
    *request = 2;
    CUDA_OK(cudaDeviceSynchronize());
}

struct Words {
    int before, released, between, gave_up;
};
Words everybodys;

int main() {
    int *here = nullptr, *there = nullptr;
    CUDA_OK(cudaHostAlloc(&here, words * sizeof(int), cudaHostAllocMapped));
    CUDA_OK(cudaHostGetDevicePointer(&there, here, 0));
    use(here, there);
    CUDA_OK(cudaFreeHost(here));

    CUDA_OK(cudaMallocHost(&here, words * sizeof(int)));  // kernels may have its address as it is
    use(here, here);
    CUDA_OK(cudaFreeHost(here));

    void* own = nullptr;
    EXPECT(posix_memalign(&own, 4096, words * sizeof(int)) == 0);
    here = static_cast<int*>(own);
    CUDA_OK(cudaHostRegister(here, words * sizeof(int), cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer(&there, here, 0));
    use(here, there);
    CUDA_OK(cudaHostUnregister(here));
    free(own);

    // The first touch beside a kernel takes 2 s, which is told on stderr.
    CUDA_OK(cudaMallocManaged(&here, words * sizeof(int)));
    use(here, here);
    CUDA_OK(cudaFree(here));
    use_variables();

    std::vector<int> unaligned(words + 2 * page_words);
    const size_t page_offset = reinterpret_cast<uintptr_t>(unaligned.data()) / sizeof(int) % page_words;
    here = unaligned.data() + (page_words - page_offset) + 600;
    CUDA_OK(cudaHostRegister(here, words * sizeof(int), cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer(&there, here, 0));
    use_ends(here, there);
    CUDA_OK(cudaHostUnregister(here));

    Words on_the_stack;
    auto on_the_heap = std::make_unique<Words>();
    for (auto* all : {&everybodys, &on_the_stack, on_the_heap.get()})
        use_words(&all->released, &all->gave_up, &all->between);
    return check::finish();
}
