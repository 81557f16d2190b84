// The images that CMakeLists.txt had nvcc make.
#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

inline std::vector<std::byte> image(const std::string& name) {
    std::ifstream file(std::string(TNR_TEST_IMAGES "/") + name, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    auto begin = reinterpret_cast<const std::byte*>(bytes.data());
    return {begin, begin + bytes.size()};
}
