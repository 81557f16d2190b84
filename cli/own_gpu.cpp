// See own_gpu.hpp.
#include "cli/own_gpu.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "api_client/base/machine_name.hpp"
#include "api_client/base/text.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

constexpr const char* numbering_cloud = "thunder";
constexpr size_t numbers_digits_max = 9;

std::string words_of(const Offer& offer) {
    return offer.gpu + (offer.gpu_count > 1 ? ":" + std::to_string(offer.gpu_count) : "");
}

bool is_number(const std::string& text) {
    return !text.empty() && text.size() <= numbers_digits_max &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

std::string machine_meant(const std::string& word) {
    return is_number(word) ? name_of_number(numbering_cloud, word) : word;
}

std::string number_in(const std::string& name) {
    const std::string begin = name_of_number(numbering_cloud, "");
    const std::string number = name.starts_with(begin) ? name.substr(begin.size()) : "";
    return is_number(number) ? number : "";
}

Result<GpuWish> choose_own_gpu(Provider& provider, const std::string& text, const std::string& size,
                               const std::string& command) {
    GpuWish wish;
    if (!text.empty()) {
        auto parsed = parse_gpu(text);
        if (!parsed) return parsed;
        wish = *parsed;
    }
    auto offers = provider.offers();
    if (!offers) return offers.error();
    std::set<std::string> choices, types;
    for (const Offer& offer : *offers) {
        const bool fits =
            text.empty() ? offer.name == size : ui::lower(offer.gpu) == wish.type && offer.gpu_count == wish.count;
        if (fits) return GpuWish{offer.gpu, offer.gpu_count};
        choices.insert(words_of(offer));
        types.insert(offer.gpu);
    }
    std::string list;
    for (const auto& choice : choices) list += (list.empty() ? "" : ", ") + choice;
    const std::string example = choices.empty() ? "TYPE" : *choices.begin();
    if (text.empty() && size.empty())
        return Error{Error::Kind::usage, "machines at " + provider.name() + " bring GPUs of their own: " + list,
                     "say which: `" + command + " --gpu " + example + "`; `tnr offers --provider " + provider.name() +
                         "` has the prices"};
    if (text.empty())
        return Error{Error::Kind::usage, provider.name() + " has no size '" + size + "'",
                     "`tnr offers --provider " + provider.name() + "` shows those there are"};
    return Error{Error::Kind::usage, provider.name() + " has no machine with '" + text + "'",
                 did_you_mean(wish.type, {types.begin(), types.end()}) + "it has: " + list};
}

void take_own_gpu(Record& record, const Machine& machine) {
    if (machine.gpu.empty()) return;
    record.gpu = record.has_gpu = machine.gpu;
    record.count = record.has_count = machine.gpu_count;
}

}  // namespace tnr::cli
