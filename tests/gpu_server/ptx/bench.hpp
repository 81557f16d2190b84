// A workbench for the PTX interpreter's tests: memory that the interpreter may touch, kernels from text or
// from what nvcc wrote, and launches in one line.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include "tests/support/catch.hpp"

#include "gpu_server/emulated_gpu/ptx/image.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::ptx::test {

// Only what was allocated here is mapped.
class HostMemory : public Memory {
public:
    Range range_of(uint64_t address) const override {
        std::lock_guard lock(mutex_);
        auto after = ranges_.upper_bound(address);
        if (after == ranges_.begin()) return {};
        auto& [begin, bytes] = *std::prev(after);
        return address < begin + bytes.size() ? Range{begin, begin + bytes.size()} : Range{};
    }
    uint64_t allocate(size_t bytes) {
        std::lock_guard lock(mutex_);
        std::vector<unsigned char> block(bytes ? bytes : 1);
        auto address = reinterpret_cast<uint64_t>(block.data());
        ranges_[address] = std::move(block);
        return address;
    }

    std::shared_ptr<const Texture> texture(uint64_t handle) const override {
        auto found = textures.find(handle);
        return found == textures.end() ? nullptr : found->second;
    }
    std::shared_ptr<const Image> surface(uint64_t handle) const override {
        auto found = surfaces.find(handle);
        return found == surfaces.end() ? nullptr : found->second;
    }
    Team team_of(uint64_t address) const override {
        auto after = teams.upper_bound(address);
        if (after == teams.begin()) return {};
        auto& team = std::prev(after)->second;
        return address < team.range.end ? team : Team{};
    }
    // By handle, teams by address; set while nothing runs.
    std::map<uint64_t, std::shared_ptr<const Texture>> textures;
    std::map<uint64_t, Team> teams;
    std::map<uint64_t, std::shared_ptr<const Image>> surfaces;

private:
    mutable std::mutex mutex_;
    std::map<uint64_t, std::vector<unsigned char>> ranges_;
};

// An array that kernels can reach and the test reads directly.
template <class T>
struct Array {
    uint64_t address = 0;
    size_t size = 0;
    T* data() const { return reinterpret_cast<T*>(address); }
    T& operator[](size_t i) const { return data()[i]; }
};

struct Options {
    uint32_t shared = 0;
    bool cooperative = false;
    Dim3 cluster{};
    unsigned threads = 2;
    const bool* cancelled = nullptr;
};

class Bench {
public:
    // Fails the test when the text does not load.
    explicit Bench(const std::string& text) : Bench(std::vector<Source>{{"the module", text}}) {}
    explicit Bench(const std::vector<Source>& linked);
    static Bench from_file(const std::string& path);

    template <class T>
    Array<T> array(size_t size) {
        return {memory_->allocate(size * sizeof(T)), size};
    }
    template <class T>
    Array<T> array(const std::vector<T>& values) {
        auto made = array<T>(values.size());
        std::memcpy(made.data(), values.data(), values.size() * sizeof(T));
        return made;
    }
    // The memory of a module-scope variable.
    template <class T>
    Array<T> global(const std::string& name) {
        for (size_t k = 0; k < module_->globals().size(); ++k)
            if (module_->globals()[k].name == name) return {addresses_[k], module_->globals()[k].size / sizeof(T)};
        FAIL("no global " << name);
        return {};
    }

    // The kernel whose name contains `name`; arguments in order, arrays as their address.
    template <class... Arguments>
    Report launch(const std::string& name, Dim3 grid, Dim3 block, const Options& options,
                  const Arguments&... arguments) {
        auto& kernel = find(name);
        std::vector<std::byte> bytes(kernel.parameter_bytes);
        size_t index = 0;
        (put(kernel, bytes, index++, arguments), ...);
        REQUIRE(index == kernel.parameters.size());
        return run_with(kernel, grid, block, options, bytes);
    }
    // As launch(), and the kernel must end well.
    template <class... Arguments>
    void run(const std::string& name, Dim3 grid, Dim3 block, const Arguments&... arguments) {
        auto report = launch(name, grid, block, {}, arguments...);
        INFO(report.detail);
        REQUIRE(report.outcome == Outcome::done);
    }

    HostMemory& memory() { return *memory_; }
    const Module& module() const { return *module_; }
    const Kernel& find(const std::string& name) const;
    std::string printed;

private:
    template <class T>
    void put(const Kernel& kernel, std::vector<std::byte>& bytes, size_t index, const Array<T>& value) {
        put(kernel, bytes, index, value.address);
    }
    template <class T>
    void put(const Kernel& kernel, std::vector<std::byte>& bytes, size_t index, const T& value) {
        REQUIRE(index < kernel.parameters.size());
        REQUIRE(kernel.parameters[index].size == sizeof value);
        std::memcpy(bytes.data() + kernel.parameters[index].offset, &value, sizeof value);
    }
    Report run_with(const Kernel& kernel, Dim3 grid, Dim3 block, const Options& options,
                    const std::vector<std::byte>& parameters);

    std::shared_ptr<const Module> module_;
    std::shared_ptr<HostMemory> memory_ = std::make_shared<HostMemory>();
    std::vector<uint64_t> addresses_;
};

std::string read_file(const std::string& path);

// A module with one entry `k` whose body is `body`; parameters are .u64 p0, p1, ... as many as asked for.
std::string module_of(const std::string& body, int parameters);

}  // namespace tnr::ptx::test
