// Texture and surface instructions, against the formulas of the programming guide written down once more.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr uint64_t handle = 0x100040;

template <class T>
ImageLevel level_of(const Array<T>& texels, uint32_t width, uint32_t height, uint32_t depth, uint32_t texel_bytes) {
    uint64_t row = uint64_t{width} * texel_bytes;
    return {texels.address, width, height, depth, row, row * height};
}

// Runs `body`, which leaves up to four 32-bit results in %a to %d, with %f, %g, %h, %e loaded from `inputs`.
std::vector<uint32_t> evaluate(const Texture& texture, const std::string& body, std::vector<float> inputs,
                               Outcome expected = Outcome::done) {
    inputs.resize(4);
    Bench bench(
        module_of(".reg .b64 %t, %in; .reg .f32 %f, %g, %h, %e; .reg .b32 %a, %b, %c, %d, %i; .reg .pred %p;"
                  ".reg .b16 %s0, %s1, %s2, %s3;\n"
                  "ld.param.u64 %t, [p0]; ld.param.u64 %in, [p1]; mov.b32 %a, 0; mov.b32 %b, 0; mov.b32 %c, 0;"
                  "mov.b32 %d, 0;\n"
                  "ld.global.f32 %f, [%in]; ld.global.f32 %g, [%in+4]; ld.global.f32 %h, [%in+8];"
                  "ld.global.f32 %e, [%in+12]; cvt.rzi.s32.f32 %i, %f;\n" +
                      body + "\nst.global.v4.b32 [%in], {%a, %b, %c, %d};",
                  2));
    bench.memory().textures[handle] = std::make_shared<Texture>(texture);
    bench.memory().surfaces[handle] = std::make_shared<Image>(texture.image);
    auto words = bench.array(inputs);
    auto report = bench.launch("k", {1}, {1}, {}, handle, words);
    INFO(body << ": " << report.detail);
    CHECK(report.outcome == expected);
    std::vector<uint32_t> result(4);
    std::memcpy(result.data(), words.data(), 16);
    return result;
}

float real(uint32_t bits) {
    return std::bit_cast<float>(bits);
}

constexpr const char* fetch_1d = "tex.1d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f}];";
constexpr const char* fetch_2d = "tex.2d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f, %g}];";

struct Line {
    std::vector<float> texels{1, 2, 4, 8};
    Bench owner{module_of("", 0)};
    Array<float> memory = owner.array(texels);
    Texture texture;
    Line() { texture.image.levels = {level_of(memory, 4, 1, 1, 4)}; }
    float at(float x) { return real(evaluate(texture, fetch_1d, {x})[0]); }
};

}  // namespace

TEST_CASE("a point sample is the texel that the coordinate falls into", "[ptx][texture]") {
    Line line;
    CHECK(line.at(0.0f) == 1);
    CHECK(line.at(1.999f) == 2);
    CHECK(line.at(3.5f) == 8);
    CHECK(line.at(-7) == 1);
    CHECK(line.at(4) == 8);
    CHECK(line.at(std::nanf("")) == 1);
    CHECK(line.at(INFINITY) == 8);
    auto exact = evaluate(line.texture, "tex.1d.v4.f32.s32 {%a, %b, %c, %d}, [%t, {%i}];", {2});
    CHECK(real(exact[0]) == 4);
}

TEST_CASE("address modes say what lies outside", "[ptx][texture]") {
    Line line;
    line.texture.normalized = true;
    auto sample = [&](Addressing mode, float x) {
        line.texture.addressing.fill(mode);
        return line.at(x);
    };
    line.texture.border = {9, 0, 0, 0};
    CHECK(sample(Addressing::wrap, 1.3f) == 2);
    CHECK(sample(Addressing::wrap, -0.2f) == 8);
    CHECK(sample(Addressing::mirror, 1.1f) == 8);
    CHECK(sample(Addressing::mirror, -0.3f) == 2);
    CHECK(sample(Addressing::clamp, 7) == 8);
    CHECK(sample(Addressing::border, 1.01f) == 9);
    CHECK(sample(Addressing::border, 0.99f) == 8);
    line.texture.image.levels[0].width = 3;
    for (float far : {0x1p24f, 1e20f, -1e20f, 3e38f, -3e38f}) {  // even numbers
        CHECK(sample(Addressing::wrap, far) == 1);
        CHECK(sample(Addressing::mirror, far) == 1);
    }
    CHECK(sample(Addressing::mirror, 0x1p23f + 1) == 4);
    line.texture.image.levels[0].width = 4;
    line.texture.normalized = false;  // then what repeats is clamped
    CHECK(sample(Addressing::wrap, 5) == 8);
}

TEST_CASE("linear filters weigh with 8 fractional bits", "[ptx][texture]") {
    Line line;
    line.texture.linear = true;
    for (int i = -100; i < 1500; i += 7) {
        float x = static_cast<float>(i) / 300;
        double scaled = std::floor((x - 0.5) * 256 + 0.5), whole = std::floor(scaled / 256),
               weight = scaled / 256 - whole;
        auto texel = [&](double index) { return line.texels[size_t(std::clamp(index, 0.0, 3.0))]; };
        CHECK(line.at(x) == float((1 - weight) * texel(whole) + weight * texel(whole + 1)));
    }
    // Halfway between two texels 1/512 apart: the weight that is nearest.
    CHECK(line.at(1.0f + 1.0f / 1024) == 1.5f);
}

TEST_CASE("texels of every format", "[ptx][texture]") {
    Bench owner(module_of("", 0));
    auto one = [&](TexelType type, uint32_t channels, std::vector<uint8_t> bytes, bool as_integer) {
        auto memory = owner.array(bytes);
        Texture texture;
        texture.image.type = type;
        texture.image.channels = channels;
        texture.image.levels = {level_of(memory, 1, 1, 1, bytes_of(type) * channels)};
        texture.as_integer = as_integer;
        return evaluate(texture, fetch_1d, {0.5f});
    };
    CHECK(real(one(TexelType::u8, 2, {255, 51}, false)[1]) == 51 / 255.0f);
    CHECK(one(TexelType::u8, 4, {1, 2, 3, 250}, true)[3] == 250);
    CHECK(real(one(TexelType::s8, 1, {0x80}, false)[0]) == -1);
    CHECK(one(TexelType::s8, 1, {0x80}, true)[0] == uint32_t(-128));
    CHECK(real(one(TexelType::u16, 1, {0xff, 0xff}, false)[0]) == 1);
    CHECK(real(one(TexelType::s16, 1, {0xff, 0x7f}, false)[0]) == 1);
    CHECK(one(TexelType::s16, 1, {0xfe, 0xff}, true)[0] == uint32_t(-2));
    CHECK(one(TexelType::u32, 1, {1, 2, 3, 4}, false)[0] == 0x04030201);
    CHECK(real(one(TexelType::f16, 1, {0x00, 0x3e}, false)[0]) == 1.5f);
    auto half = evaluate(
        [&] {
            Texture texture;
            texture.image.levels = {level_of(owner.array(std::vector<float>{0.1f}), 1, 1, 1, 4)};
            return texture;
        }(),
        "tex.1d.v4.f16.f32 {%s0, %s1, %s2, %s3}, [%t, {%f}]; cvt.u32.u16 %a, %s0;", {0.5f});
    CHECK(half[0] == to_half(0.1));
}

TEST_CASE("levels are chosen and blended", "[ptx][texture]") {
    Bench owner(module_of("", 0));
    auto large = owner.array(std::vector<float>(16, 10)), small = owner.array(std::vector<float>(4, 20)),
         least = owner.array(std::vector<float>(1, 40));
    Texture texture;
    texture.normalized = true;
    texture.image.dimensions = 2;
    texture.image.levels = {level_of(large, 4, 4, 1, 4), level_of(small, 2, 2, 1, 4), level_of(least, 1, 1, 1, 4)};
    texture.level_max = 2;
    auto at = [&](float level) {
        return real(
            evaluate(texture, "tex.level.2d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f, %g}], %h;", {0.5f, 0.5f, level})[0]);
    };
    CHECK(at(0.4f) == 10);
    CHECK(at(0.6f) == 20);
    texture.linear_levels = true;
    CHECK(at(0.5f) == 15);
    CHECK(at(1.25f) == 25);
    CHECK(at(9) == 40);
    CHECK(at(-3) == 10);
    texture.level_bias = 1;
    CHECK(at(0.5f) == 30);
    texture.level_max = 1;
    CHECK(at(0.5f) == 20);
    texture.level_max = 2;
    texture.level_bias = 0;
    auto by_steps = [&](float step) {  // in texels of the first level
        return real(evaluate(texture, "tex.grad.2d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f, %g}], {%h, %e}, {%e, %h};",
                             {0.5f, 0.5f, step / 4, 0})[0]);
    };
    CHECK(by_steps(1) == 10);
    CHECK(by_steps(2) == 20);
    CHECK(by_steps(0.01f) == 10);
    CHECK(real(evaluate(texture, fetch_2d, {0.1f, 0.1f})[0]) == 10);
}

// No filter, bias or clamp of the texture's has a say in it.
TEST_CASE("integer coordinates and a level name a texel", "[ptx][texture]") {
    Bench owner(module_of("", 0));
    std::vector<float> values(4 * 4 * 2), halved(2 * 2);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    for (size_t i = 0; i < halved.size(); ++i) halved[i] = 100 + float(i);
    auto large = owner.array(values), small = owner.array(halved);
    Texture texture;
    texture.linear = texture.linear_levels = texture.normalized = true;
    texture.level_bias = 1;
    texture.level_min = texture.level_max = 0.5f;
    texture.image.dimensions = 2;
    texture.image.levels = {level_of(large, 4, 4, 1, 4), level_of(small, 2, 2, 1, 4)};
    const std::string integers = "cvt.rzi.s32.f32 %a, %g; cvt.rzi.s32.f32 %b, %h; cvt.rzi.s32.f32 %c, %e;\n";
    auto in_plane = [&](float x, float y, float level) {
        return real(evaluate(texture, integers + "tex.level.2d.v4.f32.s32 {%a, %b, %c, %d}, [%t, {%i, %a}], %b;",
                             {x, y, level})[0]);
    };
    CHECK(in_plane(3, 2, 0) == 11);
    CHECK(in_plane(1, 0, 1) == 101);
    CHECK(in_plane(0, 1, 1) == 102);
    CHECK(in_plane(0, 1, 9) == 102);
    CHECK(in_plane(0, 1, -1) == 4);
    CHECK(real(evaluate(texture, integers + "tex.2d.v4.f32.s32 {%a, %b, %c, %d}, [%t, {%i, %a}];", {3, 1})[0]) == 7);
    texture.image.dimensions = 3;
    texture.image.levels = {level_of(large, 4, 4, 2, 4), level_of(small, 2, 2, 1, 4)};
    auto in_space = [&](float x, float y, float z, float level) {
        return real(evaluate(texture, integers + "tex.level.3d.v4.f32.s32 {%a, %b, %c, %d}, [%t, {%i, %a, %b, 0}], %c;",
                             {x, y, z, level})[0]);
    };
    CHECK(in_space(3, 2, 1, 0) == 27);
    CHECK(in_space(1, 1, 0, 1) == 103);
    texture.image.dimensions = 1;  // a line has planes' coordinates
    texture.image.levels = {level_of(large, 8, 1, 1, 4)};
    CHECK(in_plane(5, 0, 0) == 5);
}

TEST_CASE("layers, faces and gathered texels", "[ptx][texture]") {
    Bench owner(module_of("", 0));
    std::vector<float> values(2 * 2 * 6);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    auto memory = owner.array(values);
    Texture texture;
    texture.image.dimensions = 2;
    texture.image.levels = {level_of(memory, 2, 2, 6, 4)};
    texture.image.layered = true;
    constexpr const char* layer = "tex.a2d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%i, %g, %h, %h}];";
    CHECK(real(evaluate(texture, layer, {4, 1.5f, 0.5f})[0]) == 17);
    CHECK(real(evaluate(texture, layer, {-1, 0.5f, 0.5f})[0]) == 0);
    CHECK(real(evaluate(texture, layer, {77, 0.5f, 0.5f})[0]) == 20);
    texture.image.layered = false;
    texture.image.cube = true;
    constexpr const char* face = "tex.cube.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f, %g, %h, %h}];";
    const float directions[6][3] = {{1, .5f, -.5f}, {-1, .5f, .5f}, {.5f, 1, -.5f},
                                    {.5f, -1, .5f}, {.5f, .5f, 1},  {-.5f, .5f, -1}};
    for (int i = 0; i < 6; ++i) {
        auto& d = directions[i];
        CHECK(real(evaluate(texture, face, {d[0], d[1], d[2]})[0]) == float(4 * i + 1));  // right of the upper row
    }
    texture.linear = texture.seamless = true;  // at an edge of two faces: the mean of four texels
    float edge = real(evaluate(texture, face, {1, 0, 1})[0]);
    CHECK(edge == (values[0] + values[2] + values[17] + values[19]) / 4);
    texture.image.cube = texture.linear = texture.seamless = false;
    auto gathered = evaluate(texture, "tld4.r.2d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f, %g}];", {1, 1});
    for (size_t i = 0; i < 4; ++i) CHECK(real(gathered[i]) == values[(const size_t[]){2, 3, 1, 0}[i]]);
}

TEST_CASE("a texture of another shape, or none, faults", "[ptx][texture]") {
    Line line;
    evaluate(line.texture, fetch_2d, {0, 0}, Outcome::illegal_instruction);
    evaluate(line.texture, "add.u64 %t, %t, 64; tex.1d.v4.f32.f32 {%a, %b, %c, %d}, [%t, {%f}];", {0},
             Outcome::illegal_address);
    line.texture.image.in_memory = true;  // whose texels are gone
    line.texture.image.levels[0].texels = 0x1000;
    evaluate(line.texture, fetch_1d, {0}, Outcome::illegal_address);
}

TEST_CASE("queries tell what an image is", "[ptx][texture]") {
    Bench owner(module_of("", 0));
    Texture texture;
    texture.image.dimensions = 3;
    texture.image.channels = 2;
    texture.image.levels = {level_of(owner.array<float>(6 * 5 * 4 * 2), 6, 5, 4, 8)};
    auto sizes = evaluate(texture,
                          "txq.width.b32 %a, [%t]; txq.height.b32 %b, [%t]; txq.depth.b32 %c, [%t];"
                          "txq.channel_order.b32 %d, [%t];",
                          {});
    CHECK(sizes == std::vector<uint32_t>{6, 5, 4, 0x10B2});
    auto surface = evaluate(texture, "suq.width.b32 %a, [%t]; suq.channel_data_type.b32 %b, [%t];", {});
    CHECK(surface[0] == 6);
    CHECK(surface[1] == 0x10DE);
}

TEST_CASE("surfaces are written, read and reduced", "[ptx][surface]") {
    Bench owner(module_of("", 0));
    auto memory = owner.array(std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
    Texture texture;
    texture.image.type = TexelType::u32;
    texture.image.dimensions = 2;
    texture.image.levels = {level_of(memory, 4, 2, 1, 4)};
    auto run = [&](const char* body, std::vector<float> inputs = {}, Outcome outcome = Outcome::done) {
        return evaluate(texture, body, std::move(inputs), outcome);
    };
    CHECK(run("suld.b.2d.b32.trap {%a}, [%t, {4, 1}];")[0] == 6);
    auto two = run("suld.b.2d.v2.b32.trap {%a, %b}, [%t, {8, 0}];");
    CHECK(two[0] == 3);
    CHECK(two[1] == 4);
    CHECK(run("suld.b.2d.b16.trap {%s0}, [%t, {4, 0}]; cvt.u32.u16 %a, %s0;")[0] == 2);
    run("mov.b32 %a, 99; sust.b.2d.b32.trap [%t, {0, 1}], {%a};");
    CHECK(memory[4] == 99);
    run("mov.b32 %a, 5; sured.b.add.2d.u32.trap [%t, {0, 1}], %a;");
    CHECK(memory[4] == 104);
    run("mov.b32 %a, -1; sured.b.min.2d.s32.trap [%t, {0, 1}], %a;");
    CHECK(memory[4] == ~0u);
    CHECK(run("suld.b.2d.b32.zero {%a}, [%t, {16, 0}];")[0] == 0);
    CHECK(run("suld.b.2d.b32.clamp {%a}, [%t, {400, -3}];")[0] == 4);
    run("mov.b32 %a, 7; sust.b.2d.b32.zero [%t, {-4, 0}], {%a};");
    CHECK(memory[0] == 1);
    run("suld.b.2d.b32.trap {%a}, [%t, {16, 0}];", {}, Outcome::trap);
    run("suld.b.2d.b32.trap {%a}, [%t, {2, 0}];", {}, Outcome::misaligned_address);
    run("suld.b.1d.b32.trap {%a}, [%t, {0}];", {}, Outcome::illegal_instruction);
    texture.image.type = TexelType::s8;
    texture.image.channels = 4;
    run("mov.b32 %a, 1000; mov.b32 %b, -1000; sust.p.2d.v4.b32.trap [%t, {1, 0}], {%a, %b, %a, %b};");
    CHECK(memory[1] == 0x807f807f);
}

TEST_CASE("a texture reference is known by its address", "[ptx][texture]") {
    Bench bench(
        ".version 7.0\n.target sm_70\n.address_size 64\n.global .texref image;\n.global .surfref plane;\n"
        ".visible .entry k(.param .u64 p0) { .reg .b64 %in; .reg .f32 %f; .reg .b32 %a, %b, %c, %d;\n"
        "ld.param.u64 %in, [p0]; mov.f32 %f, 0f3F800000;\n"
        "tex.1d.v4.f32.f32 {%a, %b, %c, %d}, [image, {%f}]; suld.b.1d.b32.trap {%b}, [plane, {0}];\n"
        "st.global.v2.b32 [%in], {%a, %b}; ret; }\n");
    auto& globals = bench.module().globals();
    REQUIRE(globals.size() == 2);
    CHECK(globals[0].reference == Reference::texture);
    CHECK(globals[1].reference == Reference::surface);
    Line line;
    bench.memory().textures[bench.global<uint64_t>("image").address] = std::make_shared<Texture>(line.texture);
    bench.memory().surfaces[bench.global<uint64_t>("plane").address] = std::make_shared<Image>(line.texture.image);
    auto out = bench.array<float>(2);
    bench.run("k", {1}, {1}, out);
    CHECK(out[0] == 2);
    CHECK(out[1] == 1);
}
