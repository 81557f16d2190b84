// `tnr gpus`: what is known of types, and what fits on them.
#include <cmath>

#include "cli/gpu_types/fit.hpp"
#include "cli/gpu_types/models.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

cli::Needs needs(const std::string& purpose, const std::string& parameters, const std::string& dtype = "",
                 const std::string& batch = "", const std::string& context = "") {
    auto job = cli::parse_job(purpose, parameters, dtype, batch, context);
    REQUIRE(job);
    return cli::needs_of(*job);
}

bool near(double is, double wanted, double share) {
    return std::abs(is - wanted) <= share * wanted;
}

}  // namespace

TEST_CASE("gpus shows what types there are, what is known of them, and who has them", "[cli][gpus]") {
    test::FakeSession fake;
    fake.world.types = {
        {"h100", 8, 3, 80'000'000'000, "USD", 2.5}, {"t4", 1, 1, 16'000'000'000}, {"x1", 1, 0, 1 << 30}};
    fake.world.claims = {{"demo", "h100", 2, "2026-01-02T03:05:00Z", 1}};
    REQUIRE(fake.tnr({"gpus"}) == 0);
    CHECK(fake.out.str() ==
          "NAME  MEMORY    ARCHITECTURE  BF16 TFLOP/S  GB/S  PRICE    FREE  OF  HELD BY\n"
          "h100  74.5 GiB  Hopper        989           3350  $2.5/h   3     8   demo (2), others or not ready (3)\n"
          "t4    14.9 GiB  Turing        none          320   unknown  1     1   -\n"
          "x1    1.0 GiB   -             -             -     unknown  0     1   others or not ready (1)\n");
    auto types = fake.document({"gpus"})["types"];
    CHECK(types[0]["held_by"][0]["machine"] == "demo");
    CHECK(types[0]["per_hour"] == 2.5);
    CHECK(types[1]["per_hour"].is_null());
    CHECK(types[2]["bf16_tflops"].is_null());
    fake.world.pool_reachable = false;
    CHECK(fake.tnr({"gpus"}) == 1);
    CHECK(fake.err.str().find("tcp://127.0.0.1:14900") != std::string::npos);
}

// Llama 2 7B: 32 layers, 4096 wide, 6.74e9 parameters; its KV cache at 4096 tokens in fp16 is 2 GiB.
TEST_CASE("a pool that does not say what it has is not one that has nothing", "[cli][gpus]") {
    test::FakeSession fake;
    fake.world.pool_reachable = false;
    CHECK(fake.tnr({"gpus"}) != 0);
    CHECK(fake.out.str().empty());
    CHECK(fake.err.str().find("no answer from the pool") != std::string::npos);
    fake.world.pool_reachable = true;
    fake.world.types = {};
    CHECK(fake.tnr({"gpus"}) == 0);
    CHECK(fake.out.str() == "The pool has no GPUs at all at the moment\n");
}

TEST_CASE("the estimate is near what known models take", "[cli][gpus]") {
    const double gib = 1 << 30;
    CHECK(near(needs("infer", "6.74b").weights, 6.74e9 * 2, 1e-9));
    CHECK(near(needs("infer", "6.74b").kv_cache, 2 * gib, 0.05));
    CHECK(near(needs("infer", "6.74b", "bf16", "8").kv_cache, 16 * gib, 0.05));
    CHECK(near(needs("infer", "6.74b", "int4").weights, 6.74e9 / 2, 1e-9));
    // 16 bytes a parameter, as in ZeRO's paper: 7.5e9 parameters take 120 GB.
    auto train = needs("train", "7.5B", "fp16");
    CHECK(near(train.weights + train.gradients + train.optimizer, 120e9, 1e-9));
    auto full = needs("train", "7.5B", "fp32");
    CHECK(near(full.weights + full.gradients + full.optimizer, 120e9, 1e-9));
    // GPT-3: 96 layers, 12288 wide. A layer's activations of one sequence of 2048: 34·2048·12288 bytes.
    CHECK(near(needs("train", "175b", "bf16", "1", "2048").activations, 96.0 * 34 * 2048 * 12288, 0.15));
    CHECK(needs("infer", "7b").gradients == 0);
    CHECK(needs("train", "7b").kv_cache == 0);
}

TEST_CASE("--for names the types that fit, cheapest first, and why the others do not", "[cli][gpus]") {
    test::FakeSession fake;
    fake.world.types = {{"h100", 8, 8, 80'000'000'000, "USD", 3.0},
                        {"l4", 8, 8, 24'000'000'000, "USD", 0.5},
                        {"t4", 1, 1, 16'000'000'000, "USD", 0.2},
                        {"a100", 4, 0, 40'000'000'000}};
    auto document = fake.document({"gpus", "--for", "infer", "--params", "13b"});
    auto fits = document["fits"];
    REQUIRE(fits.size() == 4);
    CHECK(fits[0]["gpu"] == json{{"type", "l4"}, {"count", 2}});
    CHECK(fits[0]["per_hour"] == 1.0);
    CHECK(fits[1]["gpu"] == json{{"type", "h100"}, {"count", 1}});
    CHECK(fits[2]["gpu"] == json{{"type", "a100"}, {"count", 1}});  // at an unknown price, and so not the cheapest
    CHECK(fits[2]["why"].get<std::string>().find("0 free now") != std::string::npos);
    CHECK(fits[3]["fits"] == false);
    CHECK(document["needs"]["weights_bytes"] == 26'000'000'000);
    REQUIRE(fake.tnr({"gpus", "--for", "infer", "--params", "6b", "--columns", "name,gpus,price"}) == 0);
    CHECK(fake.out.str().starts_with("NAME  GPUS  PRICE\nl4    1     $0.5/h\n"));
    REQUIRE(fake.tnr({"gpus", "--for", "infer", "--params", "1b"}) == 0);
    CHECK(fake.out.str().starts_with("It takes 1.9 GiB weights + "));
    CHECK(fake.out.str().find("t4    1     14.9 GiB  $0.2/h   1") != std::string::npos);
    CHECK(fake.out.str().find("it has no bf16 units") != std::string::npos);
    CHECK(fake.tnr({"gpus", "--for", "train", "--params", "1t"}) == 1);
}

TEST_CASE("--for needs no pool: without one it looks at the types there are to buy", "[cli][gpus]") {
    test::FakeSession fake;
    REQUIRE(fake.tnr({"logout", "pool", "tcp://127.0.0.1:14900"}) == 0);
    auto document = fake.document({"gpus", "--for", "infer", "--params", "70b"});
    auto of = [&](const std::string& type) {
        for (const auto& fit : document["fits"])
            if (fit["gpu"]["type"] == type) return fit;
        return json();
    };
    CHECK(of("h100")["gpu"]["count"] == 3);
    CHECK(of("h100")["per_hour"].is_null());
    CHECK(of("l4")["gpu"]["count"] == 8);
    CHECK(of("t4")["fits"] == false);
    CHECK(document["types"].empty());
    REQUIRE(fake.tnr({"gpus", "--for", "infer", "--params", "7b"}) == 0);
    CHECK(fake.err.str().find("not signed in to a pool: these are the types that NVIDIA sells") != std::string::npos);
    CHECK(fake.out.str().find("free now") == std::string::npos);  // nobody knows
    CHECK(fake.tnr({"gpus"}) == 4);                               // what a pool has, only a pool knows
}

TEST_CASE("--for says what it cannot make sense of", "[cli][gpus]") {
    test::FakeSession fake;
    for (std::vector<std::string> words :
         std::vector<std::vector<std::string>>{{"--for", "play", "--params", "7b"},
                                               {"--for", "train"},
                                               {"--params", "7b"},
                                               {"--for", "infer", "--params", "many"},
                                               {"--for", "infer", "--params", "999999999999b"},
                                               {"--for", "infer", "--params", "-7b"},
                                               {"--for", "infer", "--params", "7q"},
                                               {"--for", "infer", "--params", "nan"},
                                               {"--for", "infer", "--params", "7b", "--dtype", "bf17"},
                                               {"--for", "train", "--params", "7b", "--dtype", "int4"},
                                               {"--for", "infer", "--params", "7b", "--batch", "0"},
                                               {"--for", "infer", "--params", "7b", "--context", "4k"}}) {
        words.insert(words.begin(), "gpus");
        CHECK(fake.tnr(words) == 2);
        CHECK(fake.err.str().find("\nhint: ") != std::string::npos);
    }
}
