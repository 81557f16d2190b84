// See gpu_types.hpp. A name is cut into words; what says nothing about the kind of GPU is dropped.
#include "gpu_server/pool/gpu_types.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace tnr::server {

static std::vector<std::string> words(std::string_view name) {
    std::vector<std::string> found(1);
    for (char c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)))
            found.back() += static_cast<char>(std::tolower(c));
        else if (!found.back().empty())
            found.emplace_back();
    }
    if (found.back().empty()) found.pop_back();
    return found;
}

// Vendor, product lines, form factors and kinds of memory.
static bool says_nothing(const std::string& word) {
    static constexpr std::string_view dropped[] = {"nvidia", "tesla",   "geforce",     "quadro",    "pcie",
                                                   "hbm2",   "hbm2e",   "hbm3",        "hbm3e",     "generation",
                                                   "server", "edition", "workstation", "blackwell", "emulated"};
    return std::find(std::begin(dropped), std::end(dropped), word) != std::end(dropped) || word.starts_with("sxm");
}

// A size tells types apart only where one model was sold with two, and then only the larger is named.
static bool is_larger_variant(const std::string& model, const std::string& size) {
    return (model == "a100" && size == "80gb") || (model == "v100" && size == "32gb");
}

static bool is_size(const std::string& word) {
    return word.size() > 2 && word.ends_with("gb") && std::isdigit(static_cast<unsigned char>(word[0]));
}

static bool is_rtx_a_model(const std::string& word) {  // "RTX A6000" is an a6000 to everybody
    return word.size() > 2 && word[0] == 'a' && std::isdigit(static_cast<unsigned char>(word[1]));
}

std::string gpu_type(std::string_view device_name) {
    std::string type, suffix;
    bool join = false;  // "rtx 4090" is one word to its users
    for (auto& word : words(device_name)) {
        if (says_nothing(word) || (is_size(word) && !is_larger_variant(type, word))) continue;
        if (join && word == "pro") {  // "RTX PRO 6000" is an rtx6000-pro
            suffix = "-pro";
            continue;
        }
        if (join && is_rtx_a_model(word)) type.clear();
        if (!type.empty() && !join) type += '-';
        type += word;
        join = word == "rtx" || word == "gtx";
    }
    return type.empty() ? "gpu" : type + suffix;
}

}  // namespace tnr::server
