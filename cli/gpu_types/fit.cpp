// See fit.hpp, which has the formulas and where they come from.
#include "cli/gpu_types/fit.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>

#include "cli/gpu_types/models.hpp"
#include "cli/ui/progress.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

constexpr double usable_share = 0.9;

struct Dtype {
    const char* name;
    double bytes;
    bool trains;
    double compute;  // the capability of GPUs that calculate with it; below that, it is only stored
};
constexpr Dtype dtypes[] = {{"fp32", 4, true, 0},   {"bf16", 2, true, 8.0},  {"fp16", 2, true, 5.3},
                            {"fp8", 1, false, 8.9}, {"int8", 1, false, 6.1}, {"fp4", 0.5, false, 10.0},
                            {"int4", 0.5, false, 0}};

const Dtype* find_dtype(const std::string& name) {
    for (const auto& dtype : dtypes)
        if (name == dtype.name) return &dtype;
    return nullptr;
}

// "7b", "1.3B", "350m": nothing when it is no such number.
std::optional<double> parse_parameters(const std::string& text) {
    const auto leading = ui::leading_number(text);
    if (!leading || !(leading->number > 0)) return std::nullopt;
    double number = leading->number;
    constexpr double parameters_max = 1e15;  // a thousand times the largest model that anybody has told of
    const std::string unit = ui::lower(std::string(leading->rest));
    if (unit == "k") number *= 1e3;
    if (unit == "m") number *= 1e6;
    if (unit == "b") number *= 1e9;
    if (unit == "t") number *= 1e12;
    const bool known = unit.empty() || (unit.size() == 1 && std::string("kmbt").find(unit) != std::string::npos);
    return known && number <= parameters_max ? std::optional(number) : std::nullopt;
}

Result<int> parse_count(const std::string& option, const std::string& text, int unless_told) {
    if (text.empty()) return unless_told;
    int number = 0;
    auto [rest, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (wrong == std::errc{} && rest == text.data() + text.size() && number >= 1) return number;
    return Error{Error::Kind::usage, option + " is no number: '" + text + "'", "for example `" + option + " 8`"};
}

std::string missing_units(const Dtype& dtype, const GpuType& type) {
    auto model = gpu_model(type.name);
    if (!model || model->compute >= dtype.compute) return "";
    return std::string("; it has no ") + dtype.name + " units, so it computes in another type";
}

Fit fit_of(const Job& job, const Needs& needs, const GpuType& type) {
    Fit fit{type};
    const double usable = usable_share * static_cast<double>(type.memory_bytes);
    const double count = usable > 0 ? std::ceil(needs.total() / usable) : std::numeric_limits<double>::infinity();
    const std::string needed = "needs " + ui::bytes_text(needs.total()) + "; ";
    auto has = [&](int gpus) {
        return (gpus == 1 ? "one has " : std::to_string(gpus) + " have ") + ui::bytes_text(usable * gpus) + " usable";
    };
    if (count > type.most()) {
        fit.why = needed + (type.most() > 1 ? "all " : "") + has(type.most());
        return fit;
    }
    fit.gpus = static_cast<int>(count);
    fit.why = needed + has(fit.gpus);
    if (type.free < fit.gpus) fit.why += "; " + std::to_string(type.free) + " free now";
    fit.why += missing_units(*find_dtype(job.dtype), type);
    return fit;
}

}  // namespace

Result<Job> parse_job(const std::string& purpose, const std::string& parameters, const std::string& dtype,
                      const std::string& batch, const std::string& context) {
    if (purpose != "train" && purpose != "infer")
        return Error{Error::Kind::usage, "--for is train or infer, not '" + purpose + "'",
                     "for example `tnr gpus --for infer --params 7b`"};
    if (parameters.empty())
        return Error{Error::Kind::usage, "--for needs --params, the model's number of parameters",
                     "for example `tnr gpus --for " + purpose + " --params 7b`"};
    Job job;
    job.trains = purpose == "train";
    auto number = parse_parameters(parameters);
    if (!number)
        return Error{Error::Kind::usage, "'" + parameters + "' is no number of parameters",
                     "it looks like 7b, 350m or 1.8t"};
    job.parameters = *number;
    if (!dtype.empty()) job.dtype = ui::lower(dtype);
    const auto* type = find_dtype(job.dtype);
    if (!type)
        return Error{Error::Kind::usage, "there is no dtype '" + dtype + "'",
                     "there are fp32, bf16, fp16, fp8, int8, fp4, int4"};
    if (job.trains && !type->trains)
        return Error{Error::Kind::usage, "training in " + job.dtype + " is not estimated",
                     "recipes differ; bf16 is an upper bound: `--dtype bf16`"};
    auto sequences = parse_count("--batch", batch, job.batch), tokens = parse_count("--context", context, job.context);
    if (!sequences) return sequences.error();
    if (!tokens) return tokens.error();
    job.batch = *sequences;
    job.context = *tokens;
    return job;
}

Needs needs_of(const Job& job) {
    constexpr double width_per_layer = 128;
    const double bytes = find_dtype(job.dtype)->bytes;
    const double layers =
        std::max(1.0, std::round(std::cbrt(job.parameters / (12 * width_per_layer * width_per_layer))));
    const double width = std::sqrt(job.parameters / (12 * layers));
    const double tokens = static_cast<double>(job.batch) * job.context;
    // What is stored in less than two bytes is still calculated with in two.
    const double layer_activations = 34 * tokens * width * std::max(bytes, 2.0) / 2;
    Needs needs;
    needs.weights = job.parameters * bytes;
    if (job.trains) {
        needs.gradients = needs.weights;
        needs.optimizer = job.parameters * (bytes == 4 ? 8 : 12);
        needs.activations = layers * layer_activations;
    } else {
        needs.activations = layer_activations;
        needs.kv_cache = 2 * layers * width * std::max(bytes, 1.0) * tokens;
    }
    return needs;
}

std::string needs_text(const Needs& needs) {
    std::string text;
    auto add = [&](double bytes, const char* what) {
        if (bytes > 0) text += (text.empty() ? "" : " + ") + ui::bytes_text(bytes) + " " + what;
    };
    add(needs.weights, "weights");
    add(needs.gradients, "gradients");
    add(needs.optimizer, "optimizer");
    add(needs.activations, "activations");
    add(needs.kv_cache, "KV cache");
    return text + " = " + ui::bytes_text(needs.total());
}

std::optional<double> Fit::per_hour() const {
    if (!type.per_hour || gpus == 0) return std::nullopt;
    return *type.per_hour * gpus;
}

std::vector<Fit> fits_of(const Job& job, const std::vector<GpuType>& types) {
    const Needs needs = needs_of(job);
    std::vector<Fit> fits;
    for (const auto& type : types) fits.push_back(fit_of(job, needs, type));
    auto rank = [](const Fit& fit) {
        return std::tuple(fit.gpus == 0, fit.per_hour().value_or(std::numeric_limits<double>::infinity()), fit.gpus,
                          fit.type.memory_bytes);
    };
    std::stable_sort(fits.begin(), fits.end(), [&](const Fit& a, const Fit& b) { return rank(a) < rank(b); });
    return fits;
}

}  // namespace tnr::cli
