// `tnr gpus`: the types of GPU that the pools have, and which of them a model fits on.
#include <algorithm>
#include <cstdio>

#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/gpu_types/fit.hpp"
#include "cli/gpu_types/models.hpp"
#include "cli/json_out.hpp"
#include "cli/listing.hpp"
#include "cli/overview.hpp"

namespace tnr::cli {
namespace {

struct GpusOptions {
    ListOptions list = {};
    std::string purpose = {}, parameters = {}, dtype = {}, batch = {}, context = {};
};

const std::vector<Column> gpu_columns = {{"name"},  {"memory"}, {"architecture"}, {"bf16_tflop/s"}, {"gb/s"},
                                         {"price"}, {"free"},   {"of"},           {"held_by"},      {"pool", true}};
const std::vector<Column> fit_columns = {{"name"}, {"gpus"}, {"memory"}, {"price"}, {"free"}, {"why"}};

std::string price_of(const GpuType& type, int gpus = 1) {
    if (!type.per_hour) return "unknown";
    return price_text(type.currency, *type.per_hour * gpus);
}

std::string figure(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", number);
    return text;
}

Row gpu_row(const GpuType& type, const PoolView& pool) {
    auto model = gpu_model(type.name);
    return {type.name,
            ui::bytes_text(static_cast<double>(type.memory_bytes)),
            model ? model->architecture : "",
            !model                    ? ""
            : model->bf16_tflops == 0 ? "none"
                                      : figure(model->bf16_tflops),
            model ? figure(model->gb_per_s) : "",
            price_of(type),
            std::to_string(type.free),
            std::to_string(type.total),
            holders_of(type, pool.claims),
            pool.address};
}

nlohmann::json gpu_model_json(const GpuType& type, const PoolView& pool) {
    auto model = gpu_model(type.name);
    auto json = gpu_types_json({type})[0];
    json["pool"] = pool.address;
    json["architecture"] = or_null(model ? model->architecture : "");
    json["bf16_tflops"] = model ? nlohmann::json(model->bf16_tflops) : nlohmann::json();
    json["memory_gb_per_s"] = model ? nlohmann::json(model->gb_per_s) : nlohmann::json();
    json["held_by"] = nlohmann::json::array();
    for (const auto& claim : claims_json(pool.claims))
        if (claim["gpu"]["type"] == type.name) json["held_by"].push_back(claim);
    return json;
}

nlohmann::json needs_json(const Needs& needs) {
    auto whole = [](double bytes) { return static_cast<uint64_t>(bytes); };
    return {{"weights_bytes", whole(needs.weights)},     {"gradients_bytes", whole(needs.gradients)},
            {"optimizer_bytes", whole(needs.optimizer)}, {"activations_bytes", whole(needs.activations)},
            {"kv_cache_bytes", whole(needs.kv_cache)},   {"total_bytes", whole(needs.total())}};
}

nlohmann::json fit_json(const Fit& fit) {
    return {
        {"gpu", gpu_json(fit.type.name, fit.gpus)},  {"fits", fit.gpus > 0},  {"currency", or_null(fit.type.currency)},
        {"per_hour", optional_json(fit.per_hour())}, {"free", fit.type.free}, {"why", fit.why}};
}

struct Answer {
    std::vector<PoolView> pools;
    std::optional<Job> job;
    std::vector<Fit> fits;       // of all pools' types, where there is a job
    bool on_the_market = false;  // no pool tells its types: those there are to buy
};

void print_gpus_document(Session& session, const Answer& answer, const std::vector<Trouble>& troubles) {
    auto types = nlohmann::json::array(), fits = nlohmann::json::array();
    for (const auto& pool : answer.pools)
        for (const auto& type : pool.types) types.push_back(gpu_model_json(type, pool));
    for (const auto& fit : answer.fits) fits.push_back(fit_json(fit));
    auto needs = answer.job ? needs_json(needs_of(*answer.job)) : nlohmann::json();
    print_document(session, "gpus", {{"types", types}, {"needs", needs}, {"fits", fits}}, troubles);
}

void print_fits(Session& session, const GpusOptions& options, const Answer& answer) {
    std::vector<Row> rows;
    for (const auto& fit : answer.fits)
        rows.push_back({fit.type.name, fit.gpus ? std::to_string(fit.gpus) : session.out_paint.bad("no"),
                        ui::bytes_text(static_cast<double>(fit.type.memory_bytes)),
                        fit.gpus ? price_of(fit.type, fit.gpus) : "",
                        answer.on_the_market ? "" : std::to_string(fit.type.free), fit.why});
    if (!bare(options.list)) session.out << "It takes " << needs_text(needs_of(*answer.job)) << ", about.\n\n";
    print_list(session.out, session.out_paint, options.list, fit_columns, rows);
}

// `all_told`: each pool has said what it has.
void print_gpus(Session& session, const GpusOptions& options, const Answer& answer, bool all_told) {
    std::vector<Row> rows;
    for (const auto& pool : answer.pools)
        for (const auto& type : pool.types) rows.push_back(gpu_row(type, pool));
    if (!rows.empty() || bare(options.list))
        print_list(session.out, session.out_paint, options.list, gpu_columns, rows);
    else if (!answer.pools.empty() && all_told)
        session.out << "The pool has no GPUs at all at the moment\n";
}

// Where no pool says what there is: each type as it is sold, and as many of it as one server usually has.
std::vector<GpuType> types_on_the_market() {
    constexpr int gpus_of_a_server = 8;
    std::vector<GpuType> types;
    for (const auto& model : all_gpu_models())
        types.push_back({model.name, gpus_of_a_server, gpus_of_a_server, uint64_t(model.memory_gb) * 1'000'000'000});
    return types;
}

Result<> gpus(Session& session, const GpusOptions& options) {
    const bool asks_fit = !options.purpose.empty();
    if (auto good = begin_list(session, options.list, asks_fit ? fit_columns : gpu_columns); !good) return good;
    Answer answer;
    if (asks_fit) {
        auto job = parse_job(options.purpose, options.parameters, options.dtype, options.batch, options.context);
        if (!job) return job.error();
        answer.job = *job;
    } else if (!(options.parameters + options.dtype + options.batch + options.context).empty()) {
        return Error{Error::Kind::usage, "--params and what goes with it need --for",
                     "say what for: `tnr gpus --for infer --params 7b`, or `--for train`"};
    }
    auto login = session.logins().find("");
    if (!login && !(asks_fit && login.error().kind == Error::Kind::auth)) return login.error();
    std::vector<Trouble> troubles;
    if (login) answer.pools = look_at_pools(session, troubles);
    if (interrupt::interrupted()) return interrupt::error();
    std::vector<GpuType> types;
    for (const auto& pool : answer.pools) types.insert(types.end(), pool.types.begin(), pool.types.end());
    if (types.empty() && asks_fit) {
        types = types_on_the_market();
        answer.on_the_market = true;
        session.err << (login ? "note: no pool tells its types" : "note: you are not signed in to a pool")
                    << ": these are the types that NVIDIA sells, up to 8 of each\n";
    }
    if (answer.job) answer.fits = fits_of(*answer.job, types);
    if (answer.on_the_market)
        for (auto& fit : answer.fits) fit.type.free = 0;  // to be bought, which is not free
    const bool fits = std::any_of(answer.fits.begin(), answer.fits.end(), [](const Fit& fit) { return fit.gpus > 0; });
    if (answer.job && !fits && troubles.empty()) session.exit_code = exit_failed;
    if (session.json) {
        print_gpus_document(session, answer, troubles);
        return Ok{};
    }
    if (answer.job)
        print_fits(session, options, answer);
    else
        print_gpus(session, options, answer, troubles.empty());
    tell_troubles(session, troubles);
    return Ok{};
}

}  // namespace

void add_gpus(Grammar& tnr, Session& session) {
    auto options = std::make_shared<GpusOptions>();
    auto command = tnr.command("gpus", "Show the types of GPU there are, and which a model fits on");
    command.option("--for", options->purpose, "Which types fit: train or infer");
    command.option("--params", options->parameters, "The model's parameters: 7b, 350m");
    command.option("--dtype", options->dtype, "fp32, bf16 (unless told), fp16, fp8, int8, fp4, int4");
    command.option("--batch", options->batch, "Sequences at a time; 1 unless told");
    command.option("--context", options->context, "Tokens in a sequence; 4096 unless told");
    add_list_options(command, options->list);
    command.footer(
        "BF16 TFLOP/S (dense, tensor cores) and GB/S (of the memory) are NVIDIA's figures for the fastest board of "
        "that\n"
        "name. FREE and HELD BY are the pool's; the price of a GPU too, where it says one.\n\n"
        "--for estimates a transformer of P parameters, L layers, width H (P = 12 L H^2, H = 128 L; Kaplan 2020), B\n"
        "sequences of S tokens:\n"
        "  weights      P x bytes of the dtype\n"
        "  gradients    as many (train)\n"
        "  optimizer    12 P for Adam in mixed precision, 8 P in fp32 (train; ZeRO, Rajbhandari 2020)\n"
        "  activations  34 S B H a layer at 2 bytes, attention without its S^2 table (Korthikanti 2022); all layers\n"
        "               for train, one for infer\n"
        "  KV cache     2 L H x bytes x S x B (infer); models whose heads share keys (GQA) take a fraction of it\n"
        "Without a pool it looks at the types that NVIDIA sells, up to 8 of each.\n"
        "90 % of a GPU's memory counts. Several GPUs share everything evenly, as FSDP or tensor parallelism do.\n"
        "Ends with 1 when nothing fits. Cheapest first; where prices are unknown, fewest GPUs first.\n\n"
        "Examples:\n"
        "  tnr gpus\n"
        "  tnr gpus --for infer --params 70b --dtype int4 --context 8192\n"
        "  tnr gpus --for train --params 7b --batch 4 -o json");
    command.run([&session, options] { session.result = gpus(session, *options); });
}

}  // namespace tnr::cli
