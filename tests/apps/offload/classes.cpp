// C++: virtual functions, lambdas and std::complex on the device.
#include <complex>

#include "check.h"

#pragma omp declare target
struct Shape {
    virtual int area(int side) const { return side; }
    virtual ~Shape() = default;
};
struct Block : Shape {
    explicit Block(int height) : height(height) {}
    int area(int side) const override { return side * height; }
    int height;
};
template <class Function>
void fill(Function function, int* out, int count) {
#pragma omp parallel for
    for (int i = 0; i < count; ++i) out[i] = function(i);
}
#pragma omp end declare target

int main() {
    int out[256];
#pragma omp target map(from : out)
    {
        Block block(3);
        const Shape* shape = &block;
        for (int i = 0; i < 256; ++i) out[i] = shape->area(i);
    }
    for (int i = 0; i < 256; ++i) EXPECT(out[i] == 3 * i);

    int offset = 5;
#pragma omp target map(from : out) firstprivate(offset)
    fill([=](int i) { return i * i + offset; }, out, 256);
    for (int i = 0; i < 256; ++i) EXPECT(out[i] == i * i + 5);

    std::complex<double> products[64];
#pragma omp target teams distribute parallel for map(from : products)
    for (int i = 0; i < 64; ++i) products[i] = std::complex<double>(i, 1) * std::complex<double>(0, i);
    for (int i = 0; i < 64; ++i) EXPECT(products[i] == std::complex<double>(-i, double(i) * i));
    return finish();
}
