// librsync and XXH3, as the two ends use them.
#include "cli/sync/engine/delta.hpp"

#include <librsync.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "api_client/base/handles.hpp"

namespace tnr::sync {
namespace {

using Job = Handle<rs_job_t, rs_job_free>;
using Sums = Handle<rs_signature_t, rs_free_sumset>;

constexpr size_t piece_bytes = size_t{64} << 10;
constexpr uint64_t block_bytes_min = 1 << 10, block_bytes_top = uint64_t{1} << 30;

// What is wrong comes back as an Error; librsync would also say it on stderr.
void quiet_librsync() {
    static const bool done = (rs_trace_set_level(RS_LOG_EMERG), true);
    (void)done;
}

Error librsync_failed(rs_result result) {
    return {Error::Kind::remote, std::string("comparing a file failed: ") + rs_strerror(result)};
}

// One turn of a job: what it makes goes to the sink. The answer is librsync's.
rs_result turn(rs_job_t* job, rs_buffers_t& buffers, std::vector<char>& made, const Sink& sink,
               uint64_t* out = nullptr) {
    buffers.next_out = made.data();
    buffers.avail_out = made.size();
    rs_result result = rs_job_iter(job, &buffers);
    size_t count = made.size() - buffers.avail_out;
    if (out) *out += count;
    if (count > 0 && !sink({made.data(), count})) return RS_IO_ERROR;
    return result;
}

}  // namespace

uint64_t delta_block_bytes(uint64_t old_size) {
    // Hashes cost more with smaller blocks, what surrounds a change more with larger ones: a quarter of the root is 8 KiB
    // for a gigabyte, whose hashes are then 0.1 % of it.
    auto quarter = static_cast<uint64_t>(std::sqrt(static_cast<double>(old_size)) / 4);
    return std::max({block_bytes_min, std::bit_ceil(quarter), std::bit_ceil(old_size / delta_blocks_max + 1)});
}

bool good_block_bytes(uint64_t block, uint64_t old_size) {
    return block >= block_bytes_min && block <= block_bytes_top && old_size / block <= delta_blocks_max;
}

uint64_t block_hash(std::string_view block) {
    return XXH3_64bits(block.data(), block.size());
}

struct Digest::State {
    XXH3_state_t hash;
};

Digest::Digest() : state_(new State) {
    XXH3_128bits_reset(&state_->hash);
}
Digest::~Digest() = default;

Digest& Digest::operator=(const Digest& other) {
    XXH3_copyState(&state_->hash, &other.state_->hash);
    return *this;
}

void Digest::add(std::string_view bytes) {
    XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

void Digest::add_zeros(uint64_t count) {
    static const std::array<char, piece_bytes> zeros{};
    for (; count > 0; count -= std::min<uint64_t>(count, zeros.size()))
        add({zeros.data(), std::min<uint64_t>(count, zeros.size())});
}

std::string Digest::value() const {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&state_->hash));
    return {reinterpret_cast<const char*>(bytes.digest), digest_bytes};
}

std::string digest_of(std::string_view content) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits(content.data(), content.size()));
    return {reinterpret_cast<const char*>(bytes.digest), digest_bytes};
}

Result<> make_signature(const Source& old_bytes, uint64_t old_size, const Sink& sink) {
    quiet_librsync();
    // The quick one of librsync's two: the whole file is checked anyway.
    rs_magic_number magic = RS_RK_MD4_SIG_MAGIC;
    size_t block = 0, strong = static_cast<size_t>(-1);
    rs_sig_args(static_cast<rs_long_t>(old_size), &magic, &block, &strong);
    Job job{rs_sig_begin(block, strong, magic)};
    std::vector<char> piece(piece_bytes), made(piece_bytes);
    rs_buffers_t buffers{};
    for (;;) {
        if (buffers.avail_in == 0 && !buffers.eof_in) {
            ssize_t got = old_bytes(piece.data(), piece.size());
            buffers.next_in = piece.data();
            buffers.avail_in = got > 0 ? static_cast<size_t>(got) : 0;
            buffers.eof_in = got <= 0;
        }
        rs_result result = turn(job.get(), buffers, made, sink);
        if (result == RS_DONE) return Ok{};
        if (result != RS_BLOCKED) return librsync_failed(result);
    }
}

struct DeltaMaker::State {
    Sums sums;
};

DeltaMaker::DeltaMaker(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeltaMaker::~DeltaMaker() = default;

Result<std::unique_ptr<DeltaMaker>> DeltaMaker::from_signature(std::string_view signature) {
    quiet_librsync();
    rs_signature_t* sums = nullptr;
    Job job{rs_loadsig_begin(&sums)};
    std::string bytes(signature);
    rs_buffers_t buffers{};
    buffers.next_in = bytes.data();
    buffers.avail_in = bytes.size();
    buffers.eof_in = 1;
    rs_result result = rs_job_iter(job.get(), &buffers);
    auto state = std::make_unique<State>();
    state->sums.reset(sums);
    if (result == RS_DONE) result = rs_build_hash_table(sums);
    if (result != RS_DONE) return librsync_failed(result);
    return std::unique_ptr<DeltaMaker>(new DeltaMaker(std::move(state)));
}

Result<bool> DeltaMaker::run(const Source& fresh, const Sink& sink) {
    Job job{rs_delta_begin(state_->sums.get())};
    std::vector<char> piece(piece_bytes), made(piece_bytes);
    rs_buffers_t buffers{};
    uint64_t in = 0, out = 0;
    bool vain = false;
    for (;;) {
        if (buffers.avail_in == 0 && !buffers.eof_in) {
            vain = in >= vain_bytes_max && out + out / 16 >= in - in / 16;
            ssize_t got = vain ? 0 : fresh(piece.data(), piece.size());
            if (got < 0) return librsync_failed(RS_IO_ERROR);
            in += static_cast<uint64_t>(got);
            buffers.next_in = piece.data();
            buffers.avail_in = static_cast<size_t>(got);
            buffers.eof_in = got == 0;
        }
        rs_result result = turn(job.get(), buffers, made, sink, &out);
        if (result == RS_DONE) return vain;
        if (result != RS_BLOCKED) return librsync_failed(result);
    }
}

struct DeltaReader::State {
    OldBytes old_bytes;
    Sink sink;
    Job job;
    std::string held;  // what librsync has not taken yet
    std::vector<char> made = std::vector<char>(piece_bytes);
    bool done = false;
};

DeltaReader::DeltaReader(OldBytes old_bytes, Sink sink)
    : state_(new State{std::move(old_bytes), std::move(sink), nullptr, {}}) {
    quiet_librsync();
    auto copy = [](void* self, rs_long_t at, size_t* count, void** buffer) {
        auto got = at < 0 ? -1
                          : static_cast<State*>(self)->old_bytes(static_cast<uint64_t>(at), static_cast<char*>(*buffer),
                                                                 *count);
        if (got <= 0) return RS_IO_ERROR;
        *count = static_cast<size_t>(got);
        return RS_DONE;
    };
    state_->job.reset(rs_patch_begin(copy, state_.get()));
}

DeltaReader::~DeltaReader() = default;

Result<> DeltaReader::take(std::string_view delta, bool end) {
    State& state = *state_;
    // A delta says itself where it ends; nothing comes after that.
    if (state.done) return end && delta.empty() ? Result<>{Ok{}} : Result<>{librsync_failed(RS_CORRUPT)};
    state.held += delta;
    rs_buffers_t buffers{};
    buffers.next_in = state.held.data();
    buffers.avail_in = state.held.size();
    buffers.eof_in = end;
    for (;;) {
        size_t before = buffers.avail_in;
        rs_result result = turn(state.job.get(), buffers, state.made, state.sink);
        state.done = result == RS_DONE;
        if (result != RS_DONE && result != RS_BLOCKED) return librsync_failed(result);
        bool moved = buffers.avail_in != before || buffers.avail_out != state.made.size();
        if (state.done || (!moved && !end)) break;
        if (!moved) return librsync_failed(RS_INPUT_ENDED);
    }
    state.held.erase(0, state.held.size() - buffers.avail_in);
    if (state.done ? !state.held.empty() : end) return librsync_failed(RS_CORRUPT);
    return Ok{};
}

}  // namespace tnr::sync
