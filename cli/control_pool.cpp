// The pool over its control messages; control.hpp lists them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/pool.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

class ControlPool : public Pool {
public:
    explicit ControlPool(std::unique_ptr<control::Client> client) : client_(std::move(client)) {}

    Result<std::string> hello() override {
        auto answer = client_->request({{"op", "hello"}});
        if (!answer) return answer.error();
        return answer->value("role", std::string{});
    }

    Result<std::vector<GpuType>> types() override try {
        auto answer = client_->request({{"op", "types"}});
        if (!answer) return answer.error();
        std::vector<GpuType> types;
        for (const auto& type : answer->at("types"))
            types.push_back({type.at("name"), type.at("total"), type.at("free"), type.value("memory_bytes", 0.0)});
        return types;
    } catch (const Json::exception& failure) {
        return Error{Error::Kind::remote,
                     std::string("the pool's list of GPU types makes no sense: ") + failure.what()};
    }

    Result<> enroll_machine(const std::string& name, const std::string& public_key) override {
        return tell({{"op", "enroll_machine"}, {"name", name}, {"public_key", public_key}});
    }
    Result<> forget_machine(const std::string& name) override {
        return tell({{"op", "forget_machine"}, {"name", name}});
    }

private:
    Result<> tell(const Json& request) {
        auto answer = client_->request(request);
        if (!answer) return answer.error();
        return Ok{};
    }

    std::unique_ptr<control::Client> client_;
};

}  // namespace

Result<std::unique_ptr<Pool>> connect_pool(const PoolLogin& login) {
    auto client = control::Client::open(login.address, login.keys);
    if (!client) return client.error();
    return std::unique_ptr<Pool>(std::make_unique<ControlPool>(std::move(*client)));
}

Result<GpuWish> choose_gpu(Pool& pool, const std::string& text) {
    GpuWish wish;
    if (!text.empty()) {
        auto parsed = parse_gpu(text);
        if (!parsed) return parsed;
        wish = *parsed;
    }
    auto types = pool.types();
    if (!types) return types.error();
    if (types->empty())
        return Error{Error::Kind::remote, "the pool has no GPUs at all at the moment", "try again later"};
    std::string names;
    for (const auto& type : *types) names += (names.empty() ? "" : ", ") + type.name;
    if (text.empty() && types->size() == 1) return GpuWish{types->front().name, 1};
    if (text.empty())
        return Error{Error::Kind::usage, "the pool has several types of GPU: " + names,
                     "say which: --gpu " + types->front().name};
    for (const auto& type : *types) {
        if (type.name != wish.type) continue;
        if (type.total >= wish.count) return wish;
        return Error{Error::Kind::usage,
                     "the pool has only " + std::to_string(type.total) + " GPUs of type " + wish.type,
                     "ask for fewer: --gpu " + wish.type + ":" + std::to_string(type.total)};
    }
    return Error{Error::Kind::usage, "the pool has no GPU of type '" + wish.type + "'", "it has: " + names};
}

Result<GpuWish> parse_gpu(const std::string& text) {
    GpuWish wish{text.substr(0, text.find(':')), 1};
    Error wrong{Error::Kind::usage, "'" + text + "' is no GPU type", "it looks like h100, or h100:2 for two of them"};
    if (wish.type.empty()) return wrong;
    if (wish.type.size() == text.size()) return wish;
    std::string count = text.substr(wish.type.size() + 1);
    bool digits = !count.empty() && count.size() <= 2 &&
                  std::all_of(count.begin(), count.end(), [](unsigned char c) { return isdigit(c); });
    if (!digits) return wrong;
    wish.count = std::stoi(count);
    if (wish.count < 1 || wish.count > gpu_count_max) return wrong;
    return wish;
}

}  // namespace tnr::cli
