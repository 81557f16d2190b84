// The drivers by name. A list and not self-registration: a static object in a static library whose file nobody
// names would vanish without a word, and a list is where a reader looks first.
#include "api_client/base/paths.hpp"
#include "api_client/provider.hpp"
#include "api_client/providers/local/local.hpp"

namespace tnr {

std::vector<std::string> provider_names() {
    return {"local"};
}

Result<std::unique_ptr<Provider>> make_provider(const std::string& name) {
    if (name == "local") return std::unique_ptr<Provider>(new local::LocalProvider(state_dir() / "local", cache_dir()));
    std::string known;
    for (const std::string& provider : provider_names()) known += (known.empty() ? "" : ", ") + provider;
    return Error{Error::Kind::usage, "there is no provider '" + name + "'", "providers: " + known};
}

}  // namespace tnr
