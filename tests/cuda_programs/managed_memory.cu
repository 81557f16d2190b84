// A list and its values in managed memory: made by the host, changed by kernels, walked by the host, several times
// over.
#include <cstring>

#include "check.hpp"

struct Node {
    Node* next;
    int value;
    char name[20];
};

__global__ void double_values(Node* first) {
    for (Node* node = first; node; node = node->next) {
        node->value *= 2;
        node->name[0] += 1;
    }
}

__global__ void scale(float* values, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= by;
}

int main() {
    int managed = 0;
    CUDA_OK(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
    EXPECT(managed == 1);

    Node* first = nullptr;
    for (int i = 0; i < 50; ++i) {
        Node* node = nullptr;
        CUDA_OK(cudaMallocManaged(&node, sizeof *node));
        node->next = first;
        node->value = i;
        std::strcpy(node->name, "a node");
        first = node;
    }
    for (int round = 1; round <= 3; ++round) {
        double_values<<<1, 1>>>(first);
        CUDA_OK(cudaDeviceSynchronize());
        int i = 50;
        for (Node* node = first; node; node = node->next) {
            --i;
            EXPECT(node->value == i << round);
            EXPECT(int(node->name[0]) == 'a' + round);
        }
        EXPECT(i == 0);
    }
    while (first) {
        Node* next = first->next;
        CUDA_OK(cudaFree(first));
        first = next;
    }

    const int n = 1 << 18;
    float* values = nullptr;
    CUDA_OK(cudaMallocManaged(&values, n * sizeof(float)));
    for (int i = 0; i < n; ++i) values[i] = float(i);
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachSingle));
    scale<<<n / 256, 256, 0, stream>>>(values, n, 3.0f);
    CUDA_OK(cudaStreamSynchronize(stream));
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += values[i];
    EXPECT(sum == 3.0 * (double(n) * (n - 1) / 2));
    std::vector<float> copy(n);
    CUDA_OK(cudaMemcpy(copy.data(), values, n * sizeof(float), cudaMemcpyDefault));
    EXPECT(copy[n - 1] == 3.0f * (n - 1));
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, values + 5));
    EXPECT(int(attributes.type) == int(cudaMemoryTypeManaged));
    CUDA_OK(cudaFree(values));
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
