// Reading and writing pool.json, and the addresses in it.
#include "cli/logins.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "cli/newer_fields.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

Json to_json(const PoolLogin& login) {
    return {{"address", login.address},
            {"server_key", login.keys.server_public},
            {"client_key", {{"public", login.keys.own.public_key}, {"secret", login.keys.own.secret_key}}},
            {"pool", login.pool}};
}

Result<PoolLogin> login_from_json(const Json& json) {
    PoolLogin login{json.at("address"),
                    {json.at("server_key"), {json.at("client_key").at("public"), json.at("client_key").at("secret")}},
                    json.value("pool", "")};
    if (auto endpoint = parse_endpoint(login.address); !endpoint) return endpoint.error();
    const auto& keys = login.keys;
    for (const auto& key : {keys.server_public, keys.own.public_key, keys.own.secret_key})
        if (!wire::looks_like_key(key))
            return Error{Error::Kind::usage, "a key of " + login.address + " has not 40 characters of Z85"};
    return login;
}

Result<> write(const std::string& path, const std::vector<PoolLogin>& logins) {
    auto text = read_file(path);
    const Json before = text ? Json::parse(*text, nullptr, false) : Json();
    Json file = {{"pools", Json::array()}};
    for (const auto& each : logins) {
        Json pool = to_json(each);
        if (before.is_object()) keep_newer_fields(pool, before.value("pools", Json()), {"address", "client_key"});
        file["pools"].push_back(pool);
    }
    keep_newer_fields(file, before);
    return write_file(path, file.dump(2) + "\n", 0600);
}

// By the tokens' public halves. What cannot be read is none of ours, and is replaced.
Json tokens_in(const std::string& path) {
    auto text = read_file(path);
    Json all = text ? Json::parse(*text, nullptr, false) : Json::object();
    return all.is_object() ? all : Json::object();
}

wire::KeyPair key_of_token(const Json& tokens, const std::string& token) {
    const Json key = tokens.value(token, Json());
    const Json secret = key.is_object() ? key.value("secret", Json()) : Json();
    if (!secret.is_string()) return {};
    return {wire::public_of(secret), secret};
}

Error usage(const std::string& what) {
    return Error{Error::Kind::usage, what, "a pool's address looks like tcp://gpu-node.example:14900"};
}

// What a host's name or address can have in it; more would end up in messages and in JSON.
bool is_host_letter(unsigned char c) {
    return isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']' || c == '%';
}

}  // namespace

Result<std::vector<PoolLogin>> parse_logins(const std::string& text) try {
    std::vector<PoolLogin> logins;
    const Json file = Json::parse(text);
    for (const auto& entry : file.at("pools")) {
        auto login = login_from_json(entry);
        if (!login) return login.error();
        logins.push_back(*login);
    }
    return logins;
} catch (const Json::parse_error&) {
    return Error{Error::Kind::usage, "it is no JSON"};
} catch (const Json::exception&) {
    return Error{Error::Kind::usage, "a field is missing or is of the wrong kind"};
}

Result<std::vector<PoolLogin>> Logins::all() const {
    if (!file_exists(path_)) return std::vector<PoolLogin>{};
    auto text = read_file(path_);
    if (!text) return text.error();
    auto logins = parse_logins(*text);
    if (logins) return logins;
    return Error{Error::Kind::internal, path_ + " is damaged: " + logins.error().what,
                 "remove it and run `tnr login pool` again"};
}

Result<> Logins::save(const PoolLogin& login) {
    return change([&](std::vector<PoolLogin>& logins) {
        std::erase_if(logins, [&](const PoolLogin& old) { return old.address == login.address; });
        logins.push_back(login);
        return true;
    });
}

Result<> Logins::change(const std::function<bool(std::vector<PoolLogin>&)>& changed) {
    return change_file(path_, [&]() -> Result<> {
        auto logins = all();
        if (!logins) return logins.error();
        return changed(*logins) ? write(path_, *logins) : Result<>{Ok{}};
    });
}

std::string Logins::tokens_path() const {
    return path_.substr(0, path_.rfind('.')) + "_tokens.json";
}

Result<wire::KeyPair> Logins::key_for_token(const std::string& token) {
    wire::KeyPair key;
    auto stored = change_file(tokens_path(), [&]() -> Result<> {
        Json tokens = tokens_in(tokens_path());
        key = key_of_token(tokens, token);
        if (!key.public_key.empty()) return Ok{};
        key = wire::make_key_pair();
        tokens[token] = {{"secret", key.secret_key}};
        return write_file(tokens_path(), tokens.dump(2) + "\n", 0600);
    });
    if (!stored) return stored.error();
    return key;
}

Result<> Logins::forget_token(const std::string& token) {
    return change_file(tokens_path(), [&]() -> Result<> {
        Json tokens = tokens_in(tokens_path());
        tokens.erase(token);
        if (tokens.empty()) return remove_file(tokens_path());
        return write_file(tokens_path(), tokens.dump(2) + "\n", 0600);
    });
}

Result<> Logins::renew(const std::string& address, const std::string& server_public) {
    return change([&](std::vector<PoolLogin>& logins) {
        bool any = false;
        for (auto& login : logins)
            if (login.address == address && login.keys.server_public != server_public) {
                login.keys.server_public = server_public;
                any = true;
            }
        return any;
    });
}

Result<> Logins::note_pool(const std::string& address, const std::string& pool) {
    auto differs = [&](const PoolLogin& login) { return login.address == address && login.pool != pool; };
    auto logins = all();
    if (!logins) return logins.error();
    if (std::none_of(logins->begin(), logins->end(), differs)) return Ok{};  // as nearly always: nobody need wait
    return change([&](std::vector<PoolLogin>& now) {
        auto login = std::find_if(now.begin(), now.end(), differs);
        if (login == now.end()) return false;
        login->pool = pool;
        return true;
    });
}

Result<> Logins::remove(const std::string& address) {
    return change([&](std::vector<PoolLogin>& logins) {
        return std::erase_if(logins, [&](const PoolLogin& old) { return old.address == address; }) > 0;
    });
}

Result<PoolLogin> Logins::find(const std::string& address) const {
    auto logins = all();
    if (!logins) return logins.error();
    for (auto login = logins->rbegin(); login != logins->rend(); ++login)
        if (address.empty() || login->address == address) return *login;
    return Error{
        Error::Kind::auth,
        address.empty() ? "you are not signed in to a pool of GPUs" : "you are not signed in to the pool at " + address,
        "on the pool's server run `tnr-gpu-server user add NAME --token`, then here the `tnr login pool …` line it "
        "prints"};
}

bool Endpoint::loopback() const {
    return host == "localhost" || host == "[::1]" || host == "::1" || host.compare(0, 4, "127.") == 0;
}

Result<Endpoint> parse_endpoint(const std::string& address) {
    const std::string scheme = "tcp://";
    size_t colon = address.rfind(':');
    if (address.compare(0, scheme.size(), scheme) != 0) return usage("'" + address + "' does not begin with tcp://");
    if (colon == std::string::npos || colon <= scheme.size()) return usage("'" + address + "' has no port");
    std::string host = address.substr(scheme.size(), colon - scheme.size());
    if (!std::all_of(host.begin(), host.end(), is_host_letter)) return usage("'" + host + "' is no host's name");
    std::string port = address.substr(colon + 1);
    bool digits = !port.empty() && port.size() <= 5 &&
                  std::all_of(port.begin(), port.end(), [](unsigned char c) { return isdigit(c); });
    int number = digits ? std::stoi(port) : 0;
    if (number < 1 || number > 65535) return usage("'" + port + "' is not a port number");
    return Endpoint{host, number};
}

}  // namespace tnr::cli
