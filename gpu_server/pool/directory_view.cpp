// See directory_view.hpp.
#include "gpu_server/pool/directory_view.hpp"

#include "gpu_server/pool/directory_times.hpp"

namespace tnr::server {

void DirectoryView::apply(const Change& change) {
    server::apply(change, nodes_, claims_, drains_);
}

void DirectoryView::take(const Question& question, const Backend::Found& found) {
    for (auto& account : question.accounts) looked_[account] = {boot_ms(), found.as_of};
    std::erase_if(looked_, [](auto& one) { return boot_ms() - one.second.at_ms > looked_remembered_for.count(); });
    std::erase_if(claims_, [&](auto& one) {
        auto& account = one.second.account;
        return question.all_claims || question.accounts.count(account) || !looked_.count(account);
    });
    if (question.all_free || !question.free.empty())  // there may be a thousand nodes
        for (auto& [name, node] : nodes_)
            for (auto& [type, count] : node.types)
                if (question.all_free || question.free.count(type)) count.free = 0;
    apply({false, found.entries});
}

int64_t DirectoryView::claims_as_of(const std::string& account) const {
    auto looked = looked_.find(account);
    return looked == looked_.end() ? 0 : looked->second.as_of;
}

}  // namespace tnr::server
