// The formats are OpenSSH's own: PROTOCOL.key in its sources describes the private file.
#include "cli/ssh/keys.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "api_client/base/files.hpp"
#include "api_client/base/handles.hpp"

namespace tnr::ssh {
namespace {

using Pkey = Handle<EVP_PKEY, EVP_PKEY_free>;
using DigestContext = Handle<EVP_MD_CTX, EVP_MD_CTX_free>;

const std::string algorithm = "ssh-ed25519";
const std::string file_magic = std::string("openssh-key-v1") + '\0';
const std::string pem_begin = "-----BEGIN OPENSSH PRIVATE KEY-----";
const std::string pem_end = "-----END OPENSSH PRIVATE KEY-----";
constexpr size_t pem_line = 70;     // ssh-keygen's own width
constexpr size_t cipher_block = 8;  // what the private section is padded to under cipher "none"

std::string base64(const std::string& bytes) {
    std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
    int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                 reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    text.resize(static_cast<size_t>(length));
    return text;
}

Result<std::string> unbase64(const std::string& text) {
    if (text.empty() || text.size() % 4) return Error{Error::Kind::usage, "not base64"};
    std::string bytes(text.size() / 4 * 3, '\0');
    int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                 reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    if (length < 0) return Error{Error::Kind::usage, "not base64"};
    bytes.resize(static_cast<size_t>(length));
    for (size_t i = text.size(); i > text.size() - 2 && text[i - 1] == '='; --i) bytes.pop_back();
    return bytes;
}

std::string number(uint32_t value) {
    return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
            static_cast<char>(value)};
}

std::string field(const std::string& bytes) {
    return number(static_cast<uint32_t>(bytes.size())) + bytes;
}

// Takes length-prefixed fields off the front of a message; `ok` turns false at the first that is cut short.
struct Fields {
    std::string rest;
    bool ok = true;

    uint32_t number() {
        if (rest.size() < 4) return ok = false, 0;
        uint32_t value = 0;
        for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(rest[static_cast<size_t>(i)]);
        rest.erase(0, 4);
        return value;
    }
    std::string bytes() {
        uint32_t length = number();
        if (!ok || length > rest.size()) return ok = false, "";
        std::string taken = rest.substr(0, length);
        rest.erase(0, length);
        return taken;
    }
};

std::string text_of(const std::array<uint8_t, 32>& bytes) {
    return {bytes.begin(), bytes.end()};
}

Pkey private_pkey(const KeyPair& key) {
    return Pkey{EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, key.seed.data(), key.seed.size())};
}

Error crypto_failed(const std::string& doing) {
    return Error{Error::Kind::internal, "OpenSSL failed while " + doing};
}

Error not_a_key(const std::string& why) {
    return Error{Error::Kind::usage, "this is no ed25519 private key in OpenSSH's format: " + why};
}

// The private section's own fields: two equal check numbers, the key, a comment.
Result<KeyPair> parse_private_section(const std::string& section) {
    Fields fields{section};
    uint32_t first = fields.number();
    if (first != fields.number()) return not_a_key("its check numbers differ");
    if (fields.bytes() != algorithm) return not_a_key("it is of another type");
    fields.bytes();
    std::string secret = fields.bytes();
    if (!fields.ok || secret.size() != 64) return not_a_key("it is cut short");
    std::array<uint8_t, 32> seed{};
    std::copy_n(secret.begin(), seed.size(), seed.begin());
    return key_from_seed(seed);
}

}  // namespace

Result<KeyPair> generate_key() {
    std::array<uint8_t, 32> seed{};
    if (RAND_bytes(seed.data(), static_cast<int>(seed.size())) != 1) return crypto_failed("making a key");
    return key_from_seed(seed);
}

Result<KeyPair> key_from_seed(const std::array<uint8_t, 32>& seed) {
    KeyPair key{seed, {}};
    Pkey pkey = private_pkey(key);
    size_t length = key.public_key.size();
    if (!pkey || EVP_PKEY_get_raw_public_key(pkey.get(), key.public_key.data(), &length) != 1)
        return crypto_failed("deriving a public key");
    return key;
}

std::string public_blob(const KeyPair& key) {
    return field(algorithm) + field(text_of(key.public_key));
}

std::string public_line(const KeyPair& key, const std::string& comment) {
    return line_of_blob(public_blob(key), comment);
}

std::string private_file(const KeyPair& key, const std::string& comment) {
    std::string check(4, '\0');  // any number, written twice: tells a right passphrase from a wrong one
    RAND_bytes(reinterpret_cast<unsigned char*>(check.data()), 4);
    std::string section = check + check + field(algorithm) + field(text_of(key.public_key)) +
                          field(text_of(key.seed) + text_of(key.public_key)) + field(comment);
    for (char pad = 1; section.size() % cipher_block; ++pad) section += pad;
    std::string body = base64(file_magic + field("none") + field("none") + field("") + number(1) +
                              field(public_blob(key)) + field(section));
    std::string file = pem_begin + "\n";
    for (size_t at = 0; at < body.size(); at += pem_line) file += body.substr(at, pem_line) + "\n";
    return file + pem_end + "\n";
}

Result<KeyPair> parse_private_file(const std::string& text) {
    size_t begin = text.find(pem_begin), end = text.find(pem_end);
    if (begin == std::string::npos || end == std::string::npos || end < begin + pem_begin.size())
        return not_a_key("no BEGIN and END lines");
    std::string body;
    for (size_t at = begin + pem_begin.size(); at < end; ++at)
        if (!isspace(static_cast<unsigned char>(text[at]))) body += text[at];
    auto bytes = unbase64(body);
    if (!bytes || bytes->compare(0, file_magic.size(), file_magic) != 0) return not_a_key("it is damaged");
    Fields fields{bytes->substr(file_magic.size())};
    std::string cipher = fields.bytes();
    fields.bytes();
    fields.bytes();
    if (cipher != "none") return not_a_key("a passphrase protects it");
    if (fields.number() != 1) return not_a_key("it holds several keys");
    fields.bytes();
    std::string section = fields.bytes();
    if (!fields.ok) return not_a_key("it is cut short");
    return parse_private_section(section);
}

Result<std::string> blob_of_line(const std::string& line) {
    size_t begin = line.find(' ');
    if (line.compare(0, begin == std::string::npos ? 0 : begin, algorithm) != 0 || begin == std::string::npos)
        return Error{Error::Kind::usage, "not an ssh-ed25519 public key: " + line};
    size_t end = line.find(' ', begin + 1);
    return unbase64(line.substr(begin + 1, end == std::string::npos ? end : end - begin - 1));
}

std::string line_of_blob(const std::string& blob, const std::string& comment) {
    return algorithm + " " + base64(blob) + (comment.empty() ? "" : " " + comment);
}

std::string fingerprint(const std::string& blob) {
    std::string digest(32, '\0');
    EVP_Digest(blob.data(), blob.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(),
               nullptr);
    std::string text = base64(digest);
    while (!text.empty() && text.back() == '=') text.pop_back();
    return "SHA256:" + text;
}

Result<std::string> sign(const KeyPair& key, const std::string& data) {
    Pkey pkey = private_pkey(key);
    DigestContext context{EVP_MD_CTX_new()};
    std::string signature(64, '\0');
    size_t length = signature.size();
    if (!pkey || !context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pkey.get()) != 1 ||
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length,
                       reinterpret_cast<const unsigned char*>(data.data()), data.size()) != 1)
        return crypto_failed("signing");
    return signature;
}

Result<KeyPair> load_key(const std::string& path) {
    auto text = read_file(path);
    if (!text) return text.error();
    struct stat found;
    constexpr mode_t of_others = 077;
    if (::stat(path.c_str(), &found) == 0 && (found.st_mode & of_others))
        return Error{Error::Kind::usage, "the SSH key " + path + " can be read by others, so it is not used",
                     "`chmod 600 " + path + "`; when somebody may have read it, remove it and make your machines anew"};
    auto key = parse_private_file(*text);
    if (key) return key;
    return Error{key.error().kind, path + ": " + key.error().what, "move that file away; tnr makes its own"};
}

Result<KeyPair> load_or_create_key(const std::string& path, const std::string& comment) {
    if (file_exists(path)) return load_key(path);
    auto key = generate_key();
    if (!key) return key;
    if (auto written = write_file(path, private_file(*key, comment)); !written) return written.error();
    if (auto written = write_file(path + ".pub", public_line(*key, comment) + "\n", 0644); !written)
        return written.error();
    return key;
}

}  // namespace tnr::ssh
