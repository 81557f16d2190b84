// The limits of the wire. Each bounds what a hostile or broken peer can make the other side allocate or wait for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tnr::wire {

// Raise it when the meaning of a record or of a control message changes; adding a call does not: an op that the worker
// does not know is answered with CUDA_ERROR_NOT_SUPPORTED.
inline constexpr uint32_t protocol_version = 4;
// A server takes clients from this version on, whatever their call table: libraries on machines are older than the
// server. tests/packaging/previous_client runs a client of this version against today's server.
inline constexpr uint32_t oldest_protocol_version = protocol_version - 1;

// Payload of one record without its bulk frame: kernel parameters (at most 32 KiB + names) and small copies fit with
// room.
inline constexpr size_t record_bytes_max = size_t{1} << 20;

// Copies up to here travel inside the record: below, an extra memcpy is cheaper than a frame of their own.
inline constexpr size_t inline_copy_bytes_max = size_t{16} << 10;

// One bulk frame. 1 MiB pieces overlap sending, receiving and the copy to the GPU; larger ones would not be faster and
// would hold up another thread's launches for longer.
inline constexpr size_t piece_bytes_max = size_t{1} << 20;

// Frame 0 of a batch. Twice a record, so that a record that no longer fits always fits into the next batch.
inline constexpr size_t batch_bytes_max = size_t{2} << 20;
// Pieces in one batch.
inline constexpr size_t batch_frames_max = 64;

// A code image as sent (compressed): the largest single cubin in public wheels is about 400 MiB.
inline constexpr size_t image_bytes_max = size_t{1} << 30;
// Images of at least this size are offered before they are sent. A program's own code is smaller, and so costs no extra
// round trip the first time. This much takes 20 ms at 100 Mb/s.
inline constexpr size_t offered_image_bytes_min = size_t{256} << 10;
// The total of images that have been sent (wholly or in part) but not loaded: two threads may each be loading the
// largest there is.
inline constexpr size_t incoming_images_bytes_max = 2 * image_bytes_max;
// Images that have been sent or offered but not loaded. One per thread; no program is known to load on 100 threads at
// once.
inline constexpr size_t incoming_images_max = 256;

// Unacknowledged bytes a sender may have in flight: 64 MiB keeps a 10 Gb/s link with 50 ms round trip busy and bounds
// the memory that a stalled GPU can make either side hold.
inline constexpr size_t window_bytes = size_t{64} << 20;
// Of that, records (not bulk data) that a sender keeps because the other side has not received them yet: at least
// 20,000 launches, where NVIDIA's driver makes a program wait after 1,000. A long line gets more (pace.hpp), up to the
// window.
inline constexpr size_t kept_record_bytes_min = size_t{2} << 20;
// A large copy keeps at least this many bytes on their way, bulk data included, and more only where the line is long
// (pace.hpp): four pieces overlap all that can overlap, and are still in a cache when they are read again.
inline constexpr size_t kept_bytes_min = 4 * piece_bytes_max;
// Batches taken out of the socket before the receiver asks for them, so that a busy receiver's sender need not keep
// them.
inline constexpr size_t early_batches_max = 128;
// Send an acknowledgement, even with nothing else to send, once this much is owed.
inline constexpr size_t acknowledge_every_bytes = size_t{8} << 20;
// Send a receipt once this many bytes have arrived: until then the other side keeps them, to send them again.
inline constexpr size_t receipt_every_bytes = size_t{1} << 20;
// With nothing more to read, send it after this many: the sender may want memory back that it lent for a copy.
inline constexpr size_t receipt_when_quiet_bytes = inline_copy_bytes_max;

// Connections that carry the data of an encrypted session beside its main one (lanes.hpp). One carries about 1 GB/s:
// CURVE takes a core a second for each GB, at either end. Beyond four it is the copies in memory that limit a session.
inline constexpr size_t lanes_max = 4;
// A batch with less data than this stays on the main connection: it is encrypted in less time than a thread takes to
// wake.
inline constexpr size_t lane_batch_bytes_min = size_t{64} << 10;
// Connections may break for other reasons while lanes are being dialled; after this many times in a row, the lanes are
// taken to be the reason.
inline constexpr int lane_failures_max = 3;
// What may have arrived before its turn in a session with lanes. The sender's window bounds the data, though each of a
// program's threads may exceed it by a batch; kept_batches_max, and what needs no credit, bounds the number of batches.
inline constexpr size_t overtaking_bytes_max = 2 * window_bytes;
inline constexpr size_t overtaking_batches_max = size_t{64} << 10;
// Batches that a sender may have on their way. A batch holds all launches of some µs: only tiny ones on a long line
// reach it.
inline constexpr size_t kept_batches_max = overtaking_batches_max / 2;

// A control message (JSON). The device description of 16 GPUs is about 100 KiB.
inline constexpr size_t control_bytes_max = size_t{1} << 20;

// How often ZeroMQ asks whether the peer still lives, and how long it may be silent before it is taken for gone.
inline constexpr std::chrono::milliseconds heartbeat_interval{500};
inline constexpr std::chrono::milliseconds heartbeat_timeout{10'000};

// A peer that has been silent for this long is in trouble, though perhaps not gone: four heartbeats were missed.
inline constexpr std::chrono::milliseconds silence_suspicious{2'000};

// A connection to a worker whose handshake takes longer than this is a stranger's, and is closed: their number is
// limited.
inline constexpr std::chrono::milliseconds worker_handshake_timeout{3'000};

// How long both sides of a broken connection keep what is needed to go on, when it was the network that failed.
inline constexpr std::chrono::milliseconds default_grace{30'000};
// When a client's kernel has closed the connection, the worker waits this long for the client to connect again. A
// client that lives does so at once, unless something on the way resets connections for a moment; one that was killed
// never does, and its GPU is promised to others within two seconds.
inline constexpr std::chrono::milliseconds knocks_within{1'200};

}  // namespace tnr::wire
