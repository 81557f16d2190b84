// TNR_LOG=trace: each call that the program makes, with its arguments, as one line:
//
//     tnr: cuMemAlloc_v2(*dptr=0x302000000, bytesize=4096) = CUDA_SUCCESS
//
// Handles and addresses are in hex. `*name=` is what the call has written behind that pointer; if it failed, or `name`
// is a list or a structure, the pointer itself stands there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// An argument without its type. The generated code says which integers are addresses and which pointers may be
// followed.
struct Argument {
    enum class Form : uint8_t { number, natural, address, real, text, structure };
    const char* name;
    Form form;      // of the value; of an out-parameter: of what it points to
    uint8_t bytes;  // likewise; 0: a buffer of characters
    bool is_out;
    uint64_t value;

    template <class T>
    static Argument of(const char* name, T value) {
        if constexpr (std::is_class_v<T>)
            return {name, Form::structure, 0, false, 0};
        else
            return {name, form_of<T>(), sizeof(T), false, bits(value)};
    }
    template <class T>
    static Argument address(const char* name, T value) {
        return {name, Form::address, sizeof(T), false, bits(value)};
    }
    template <class T>
    static Argument out(const char* name, T* value) {
        if constexpr (std::is_class_v<T> || std::is_union_v<T>)
            return {name, Form::address, sizeof value, false, bits(value)};
        else
            return {name, form_of<T>(), sizeof(T), true, bits(value)};
    }
    template <class T>
    static Argument out_address(const char* name, T* value) {
        return {name, Form::address, sizeof(T), true, bits(value)};
    }
    static Argument out_text(const char* name, const char* value) { return {name, Form::text, 0, true, bits(value)}; }

private:
    template <class T>
    static constexpr Form form_of() {
        if (std::is_same_v<T, const char*>) return Form::text;
        if (std::is_pointer_v<T>) return Form::address;
        if (std::is_floating_point_v<T>) return Form::real;
        return std::is_unsigned_v<T> ? Form::natural : Form::number;  // cuda.h's enums are numbers
    }
    template <class T>
    static uint64_t bits(T value) {
        uint64_t all = 0;
        static_assert(sizeof value <= sizeof all);
        __builtin_memcpy(&all, &value, sizeof value);
        return all;
    }
};

// Writes the line without "tnr: ", cut to `size`, and ends it with a 0.
void describe_call(char* line, size_t size, const char* name, std::initializer_list<Argument> arguments,
                   CUresult result);

}  // namespace tnr::cuda
