// Forms out, JSON in; signatures by OpenSSL.
#include "api_client/http/oauth.hpp"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "api_client/base/handles.hpp"
#include "api_client/http/parse.hpp"

namespace tnr::http {
namespace {

constexpr std::array secret_form_fields = {"client_secret", "refresh_token", "assertion", "client_assertion",
                                           "subject_token"};

// With the two characters that may stand in an address, and no padding.
std::string base64url(const std::string& bytes) {
    std::string text = base64(bytes);
    text.erase(text.find_last_not_of('=') + 1);
    std::replace(text.begin(), text.end(), '+', '-');
    std::replace(text.begin(), text.end(), '/', '_');
    return text;
}

using Bio = Handle<BIO, BIO_free_all>;
using PrivateKey = Handle<EVP_PKEY, EVP_PKEY_free>;
using Digest = Handle<EVP_MD_CTX, EVP_MD_CTX_free>;

std::string signature_of(const std::string& text, EVP_PKEY* key) {
    const Digest digest(EVP_MD_CTX_new());
    size_t size = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    if (!digest || EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, key) != 1 ||
        EVP_DigestSign(digest.get(), nullptr, &size, bytes, text.size()) != 1)
        return "";
    std::string signature(size, '\0');
    if (EVP_DigestSign(digest.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes, text.size()) !=
        1)
        return "";
    signature.resize(size);
    return signature;
}

}  // namespace

std::string encoded(const Form& form) {
    std::string text;
    for (const auto& [name, value] : form) text += (text.empty() ? "" : "&") + escaped(name) + "=" + escaped(value);
    return text;
}

Result<std::string> token_in(const std::string& cloud, const std::string& reply) {
    const nlohmann::json json = parse_json(reply);
    if (json.is_object() && json.contains("access_token") && json["access_token"].is_string() &&
        !json["access_token"].get<std::string>().empty())
        return json["access_token"].get<std::string>();
    return Error{Error::Kind::remote, cloud + "'s reply to a sign-in has no token"};
}

Result<std::string> fetch_token(Client& client, const TokenQuestion& question) {
    for (const auto& [name, value] : question.form)
        if (std::find(secret_form_fields.begin(), secret_form_fields.end(), name) != secret_form_fields.end())
            client.hide(value);
    Request request{.method = "POST",
                    .url = question.url,
                    .headers = {"Content-Type: application/x-www-form-urlencoded", "Accept: application/json"},
                    .body = encoded(question.form),
                    .repeatable = true,
                    .brings_secrets = true};
    request.headers.insert(request.headers.end(), question.headers.begin(), question.headers.end());
    auto response = client.send(request);
    if (!response) return response.error();
    if (response->ok()) return token_in(question.cloud, response->body);
    const nlohmann::json json = parse_json(response->body);
    std::string words = "status " + std::to_string(response->status);
    if (json.is_object())
        for (const char* field : {"error", "error_description"})
            if (json.contains(field) && json[field].is_string()) words = json[field];
    words = client.shown(question.cloud + " does not take these credentials: " + words);
    if (response->status >= 500 || response->status == 429)
        return Error{Error::Kind::remote, words, "the trouble is on the cloud's side; try again in a while"};
    return Error{Error::Kind::auth, words, question.sign_in};
}

Result<std::string> signed_jwt(const nlohmann::json& header, const nlohmann::json& claims, const std::string& key_pem) {
    const Bio text(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())));
    // A key with a passphrase is refused, never asked for on the terminal.
    auto no_passphrase = [](char*, int, int, void*) { return 0; };
    const PrivateKey key(text ? PEM_read_bio_PrivateKey(text.get(), nullptr, no_passphrase, nullptr) : nullptr);
    if (!key || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA)
        return Error{Error::Kind::auth, "the private key cannot be read: it is no RSA key in PEM"};
    const std::string what = base64url(header.dump()) + "." + base64url(claims.dump());
    const std::string signature = signature_of(what, key.get());
    if (signature.empty()) return Error{Error::Kind::internal, "OpenSSL cannot sign with the private key"};
    return what + "." + base64url(signature);
}

int64_t seconds_of(const std::string& utc) {
    std::tm time = {};
    if (!::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &time)) return 0;
    return ::timegm(&time);
}

std::string base64(const std::string& bytes) {
    std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // and the zero that OpenSSL writes
    const int size =
        EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    text.resize(static_cast<size_t>(size));
    return text;
}

std::string new_uuid() {
    std::array<unsigned char, 16> b = {};
    if (RAND_bytes(b.data(), b.size()) != 1) return "";
    b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
    b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
    char text[37];
    std::snprintf(text, sizeof text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                  b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return text;
}

}  // namespace tnr::http
