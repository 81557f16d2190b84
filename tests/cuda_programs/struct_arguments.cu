// Structs passed by value: pointers hidden inside, padding, nested arrays, many arguments, and nearly 4 KiB of them.
#include "check.hpp"

struct Image {
    char kind;  // padding follows
    struct {
        const int* rows[2];
        short widths[3];
    } parts;
    int* out;
    double scale;
};

struct Large {
    int values[1000];
};

__global__ void use_image(Image image, char tag, Image* written, short offset) {
    int i = threadIdx.x;
    image.out[i] = int(image.scale * (image.parts.rows[0][i] + image.parts.rows[1][i])) + image.parts.widths[2] +
                   offset + (image.kind == tag ? 1000 : 0);
    if (i == 0) *written = image;
}

__global__ void use_large(Large large, int* out) {
    for (int i = threadIdx.x; i < 1000; i += blockDim.x) out[i] = large.values[(i * 7) % 1000];
}

__global__ void use_many(char a, short b, int c, long long d, float e, double f, char3 g, float4 h, double* out) {
    *out = a + b + c + double(d) + e + f + g.x + g.y + g.z + h.x + h.y + h.z + h.w;
}

int main() {
    const int n = 128;
    std::vector<int> first(n), second(n), expected(n);
    for (int i = 0; i < n; ++i) {
        first[i] = i, second[i] = 3 * i;
        expected[i] = 2 * (first[i] + second[i]) + 9 - 4 + 1000;
    }
    check::Array<int> device_first(first), device_second(second), out(n);
    check::Array<Image> written(1);
    Image image{'x', {{device_first.data, device_second.data}, {7, 8, 9}}, out.data, 2.0};
    use_image<<<1, n>>>(image, 'x', written.data, -4);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);
    EXPECT(written.host()[0].out == out.data && written.host()[0].parts.rows[1] == device_second.data);

    Large large;
    for (int i = 0; i < 1000; ++i) large.values[i] = i * i;
    check::Array<int> large_out(1000);
    use_large<<<1, 256>>>(large, large_out.data);
    large = Large{};  // the launch has its own copy
    std::vector<int> large_expected(1000);
    for (int i = 0; i < 1000; ++i) large_expected[i] = ((i * 7) % 1000) * ((i * 7) % 1000);
    EXPECT_EQUAL(large_out.host(), large_expected);

    check::Array<double> sum(1);
    use_many<<<1, 1>>>(-1, 300, 70'000, 1ll << 40, 0.5f, 0.25, make_char3(1, 2, 3), make_float4(1, 2, 3, 4), sum.data);
    CUDA_LAUNCHED();
    EXPECT(sum.host()[0] == -1 + 300 + 70'000 + double(1ll << 40) + 0.75 + 6 + 10);
    return check::finish();
}
