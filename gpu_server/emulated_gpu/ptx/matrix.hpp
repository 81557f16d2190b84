// Matrices that a warp holds together, each lane some elements in its registers (mma, wmma): which lane has which
// element, and how an element's bits are read. Layouts of mma are those that PTX documents; of wmma's fragments PTX
// says only how many registers they take, so those of `a` and `b` are ours.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tnr::ptx {

inline constexpr uint32_t warp_lanes = 32;

}  // namespace tnr::ptx

namespace tnr::ptx::matrix {

// Floats of six and four bits lie in a byte each, those of four in its middle; e2m1_packed are two to a byte.
enum class Element : uint8_t {
    none,
    f16,
    bf16,
    tf32,
    f32,
    f64,
    e4m3,
    e5m2,
    e3m2,
    e2m3,
    e2m1,
    e2m1_packed,
    s32,
    s8,
    u8,
    s4,
    u4,
    b1
};

Element element_named(std::string_view word);  // "bf16"; Element::none for any other word
constexpr uint32_t bits_of(Element element) {
    switch (element) {
        case Element::none:
            return 0;
        case Element::b1:
            return 1;
        case Element::s4:
        case Element::u4:
        case Element::e2m1_packed:
            return 4;
        case Element::s8:
        case Element::u8:
        case Element::e4m3:
        case Element::e5m2:
        case Element::e3m2:
        case Element::e2m3:
        case Element::e2m1:
            return 8;
        case Element::f16:
        case Element::bf16:
            return 16;
        case Element::tf32:
        case Element::f32:
        case Element::s32:
            return 32;
        case Element::f64:
            return 64;
    }
    return 0;
}
constexpr bool is_whole(Element element) {
    return element >= Element::s32;
}
// Registers of a fragment are this wide.
constexpr uint32_t register_bits(Element element) {
    return element == Element::f64 ? 64 : 32;
}

double real_of(uint64_t bits, Element element);
int32_t whole_of(uint32_t bits, Element element);
uint64_t bits_from(double value, Element element);  // rounded to nearest

struct Shape {
    uint32_t m = 0, n = 0, k = 0;
};
// "m16n8k16"; all zero for any other word.
Shape shape_named(std::string_view word);

enum class Role : uint8_t { a, b, accumulator };               // accumulator: c and d
enum class Family : uint8_t { mma, sparse, wmma, warpgroup };  // of a warpgroup: the 16 rows of 64 that a warp has

struct Fragment {
    Element element = Element::none;
    uint32_t rows = 0, columns = 0;  // of a sparse `a`: of what is stored
    uint32_t parts = 1;              // so many matrices, one after the other in the numbering of `places`
    uint32_t register_count = 0;     // of each lane
    uint32_t elements = 0;           // likewise
    std::vector<uint16_t> places;    // [lane * elements + element]: (part * rows + row) * columns + column
    uint32_t registers = 0;          // the first of them in Program::registers

    uint32_t per_register() const { return register_bits(element) / bits_of(element); }
};

// What `family` has of this shape; with no registers where it has no such thing.
Fragment fragment(Family family, Role role, Shape shape, Element element);

// Volta's m8n8k4 of halves: each quarter of the warp (four lanes, and those 16 above them) multiplies matrices of its own, which
// alone may lie in columns.
Fragment volta_fragment(Role role, bool columns, Element element);
constexpr bool is_volta(Shape shape, Element element) {
    return shape.m == 8 && shape.n == 8 && shape.k == 4 && element == Element::f16;
}

// Of each four pieces of a sparse row two are stored. A piece is an element, or two of four bits, or half of a tf32 (both halves
// of one are stored). Two bits of metadata say which piece a stored one is; one, two or all of four lanes hold those of
// the rows r and r + 8, and the selector says which do.
struct MetadataPlace {
    uint32_t lane, shift;
};
MetadataPlace metadata_place(const Fragment& stored, uint32_t row, uint32_t column, uint32_t selector);
uint32_t whole_column(Element element, uint32_t stored_column, uint32_t two_bits);
struct Sparsity {
    bool there = false;
    uint32_t metadata = 0, selector = 0;  // RegRefs
};

enum class Arithmetic : uint8_t { real, whole, xor_popc, and_popc };

// Block scaling: each row of `a` and each column of `b` in `chunks` parts, all of a part times one number of a byte. Which lanes
// of four hold them, and in which bytes, instructions choose at run time (RegRefs of 16 bits).
struct Scale {
    uint32_t data = 0, byte = 0, lane = 0;
};
struct Scales {
    uint32_t chunks = 0;  // none
    bool powers = true;   // ue8m0, not ue4m3
    Scale a, b;
};

// d = a * b + c
struct Multiply {
    Fragment d, a, b, c;
    Arithmetic arithmetic = Arithmetic::real;
    bool saturate = false;  // whole numbers: at the ends of 32 bits, else they wrap
    Scales scales;
    Sparsity sparsity;
};

// d = a * b, plus d if told so: by four warps, of which each has 16 rows of `a` and `d`. The numbers of `b`, and those of `a` that is
// not in registers, lie in shared memory, where a descriptor says (ops_warpgroup.cpp).
struct SharedMatrix {
    Element element = Element::none;
    uint32_t descriptor = 0;  // RegRef
    bool turned = false;      // neighbours in memory are of one k
    bool negated = false;
};
struct WarpgroupMultiply {
    Fragment d, a;  // `a` with no registers: in shared memory
    SharedMatrix left, right;
    uint32_t columns = 0, depth = 0;
    uint32_t adds = 0;      // RegRef of a predicate
    bool saturate = false;  // whole numbers, as above
};

}  // namespace tnr::ptx::matrix
