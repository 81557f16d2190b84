// See resume.hpp.
#include "cli/sync/resume.hpp"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "cli/ssh/exec.hpp"

namespace tnr::sync {
namespace {

using Sha256 = Handle<EVP_MD_CTX, EVP_MD_CTX_free>;

constexpr uint64_t out_of_order_bytes = uint64_t{ssh::sftp_in_flight_max} * ssh::sftp_piece_bytes;
constexpr std::chrono::minutes hash_limit{10};  // some 100 GB from a slow disk

std::string hex(const unsigned char* bytes, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
        text += "0123456789abcdef"[bytes[i] >> 4];
        text += "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
}

}  // namespace

uint64_t bytes_to_keep(uint64_t part_bytes) {
    if (part_bytes <= out_of_order_bytes) return 0;
    return (part_bytes - out_of_order_bytes) / ssh::sftp_piece_bytes * ssh::sftp_piece_bytes;
}

std::string hash_here(const UniqueFd& file, uint64_t bytes) {
    Sha256 digest{EVP_MD_CTX_new()};
    if (!file || !digest || EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) != 1) return "";
    std::vector<char> piece(size_t{1} << 20);
    while (bytes > 0) {
        ssize_t got = ::read(file.get(), piece.data(), std::min<uint64_t>(piece.size(), bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || EVP_DigestUpdate(digest.get(), piece.data(), static_cast<size_t>(got)) != 1) return "";
        bytes -= static_cast<uint64_t>(got);
    }
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    return EVP_DigestFinal_ex(digest.get(), hash, &length) == 1 ? hex(hash, length) : "";
}

std::string hash_there(ssh::Sftp& sftp, const std::string& path, uint64_t bytes) {
    std::string line = "head -c " + std::to_string(bytes) + " -- " + ssh::quoted(path) + " | sha256sum";
    auto said = ssh::capture(sftp.client(), line, "", ssh::Clock::now() + hash_limit);
    if (!said || said->code != 0) return "";
    return said->out.substr(0, said->out.find(' '));
}

}  // namespace tnr::sync
