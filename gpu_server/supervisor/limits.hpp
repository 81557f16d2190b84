// The supervisor's limits. Each bounds what a peer, a worker or a broken GPU can make it hold or wait for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tnr::server {

using std::chrono::milliseconds;

// ---- What strangers and one peer can make the control socket hold. A peer is a key, however many connections it has; in
// an open pool, where nobody has one, it is a connection.

// A request. The longest that our clients make has 1 KiB.
inline constexpr size_t request_bytes_max = size_t{16} << 10;
// What we still read, so that the sender of an oversized one gets an answer; beyond, ZeroMQ cuts the connection.
inline constexpr size_t request_answerable_bytes = 2 * request_bytes_max;
// Parts of a message; likewise. Requests have one, those of a REQ socket an empty one before it.
inline constexpr int request_parts_max = 2;
// ZeroMQ's own words (PING, SUBSCRIBE) over one connection, between two of our heartbeats: nothing else bounds them, and each
// PING is answered. Its own clients send two; after a pause of ours as many as they had time for (heartbeat_timeout).
inline constexpr int commands_per_heartbeat_max = 32;
// Of one connection, in ZeroMQ's queues: requests that we have not taken yet, and answers that are not read. A client of
// ours has one request under way. The longest answer, the description of 16 GPUs, has 100 KiB.
inline constexpr int requests_per_connection_max = 4;
inline constexpr int answers_per_connection_max = 8;
// Connections of one key: a program has one, and a large machine some dozens of programs.
inline constexpr size_t connections_per_key_max = 256;
// … and of an account: a user whose machines have a key each.
inline constexpr size_t connections_per_account_max = 2048;
// Beyond these, some more are let in, for nothing but to be told.
inline constexpr size_t connections_told_max = 16;
// Connections from one address (of IPv6: one /64) that have not proven a key yet. A handshake needs some milliseconds, and
// so does the refusal of an unknown key: the second bounds what wrong keys cost. Those that prove a key do not count.
// Others may be behind the same address. So with all places taken whoever comes gets that of the one who has had his for
// longest, if that was long enough for a handshake: four times there and back, over 60 ms.
inline constexpr size_t unproven_per_source_max = 128;
inline constexpr milliseconds unproven_left_alone_for{250};
inline constexpr double unproven_per_second_max = 100;
inline constexpr double unproven_burst = 500;
// Who has proven a key lately gets in between others of his address, however many come: each of them tries some ten times a
// second.
inline constexpr double unproven_per_second_known_max = 500;
inline constexpr std::chrono::seconds address_known_for{600};
// Requests of one peer that wait for their turn, and of all keys of an account.
inline constexpr size_t requests_per_peer_max = 512;
inline constexpr size_t request_bytes_per_peer_max = size_t{1} << 20;
inline constexpr size_t requests_per_account_max = 2048;
inline constexpr size_t request_bytes_per_account_max = size_t{4} << 20;
// Requests of an account, in the long run and at once. The supervisor answers some 10,000 a second: so one user takes at
// most a tenth of its time.
inline constexpr double requests_per_second_max = 1000;
inline constexpr double requests_burst = 4000;
// Making a long answer costs as much as a request for each so many bytes of it. An account may have as many of those as it may send
// requests; beyond them it is not refused, but its next requests wait for what comes back, which is looked at this often.
inline constexpr size_t answer_bytes_per_request = 1024;
inline constexpr milliseconds spent_looked_at_every{5};
// What comes beyond is refused, and so often in a second its sender is told; the rest is dropped.
inline constexpr double refusals_per_second_max = 20;
// Even what is dropped has to be read first, and waking up for each costs most of that: half of the supervisor's time, when somebody
// sends without end. So much of it a user may send, in the long run and at once; then each connection over which more comes is cut.
inline constexpr double dropped_per_second_max = 200, dropped_burst = 2000;
// Between two looks at everything else that happens: how many requests are taken out of the socket, and for how long
// they are answered.
inline constexpr int requests_taken_at_once = 64;
inline constexpr milliseconds requests_answered_for{2};
// A peer that connects and then says nothing is cut off after this; so is one that reads nothing of what it was sent.
inline constexpr milliseconds handshake_timeout{5'000};
inline constexpr milliseconds unread_timeout{10'000};
// With one port for everything: connections that have not said yet whom they are for, of an address and of all; who has
// waited longest goes when there are more, and each after this time. A client's ten bytes come with its first packet.
inline constexpr size_t greetings_waiting_per_source_max = 64;
inline constexpr size_t greetings_waiting_max = 128;  // half of descriptors_kept_back
inline constexpr milliseconds greeting_timeout{5'000};
// Descriptors that connections leave to workers, helpers and files. A worker needs two, one at its start some more.
inline constexpr int descriptors_kept_back = 256;
// What we ask the kernel for; a server that is no system service often begins with 1,024.
inline constexpr size_t descriptors_wanted = 65'536;
// Messages of one worker that are read before the others get their turn.
inline constexpr int worker_messages_at_once = 16;
// What a worker says once it serves has some hundred bytes; its last word may be a driver's complaint.
inline constexpr size_t serving_worker_message_bytes_max = size_t{4} << 10;
// Messages of all workers of a user, in the long run and at once. One costs the supervisor some ten microseconds. What comes
// beyond waits in the workers' sockets, and those are looked at again after the pause. A process that lends all that it may
// (things_of_claim_max) says so much in one go.
inline constexpr double worker_messages_per_second_max = 5'000, worker_messages_burst = 20'000;
inline constexpr milliseconds worker_unheard_for{20};
// What a worker may add to the log: in one line, and within ten seconds. A driver's complaint has some lines.
inline constexpr size_t foreign_line_bytes_max = 500;
inline constexpr size_t foreign_log_bytes_max = size_t{64} << 10;
inline constexpr milliseconds foreign_log_window{10'000};

// ---- What a request may say, beside what protocol/control.hpp has.

inline constexpr size_t process_name_bytes_max = 256;
inline constexpr size_t gpu_name_bytes_max = 64;
inline constexpr size_t nonce_bytes_max = 64;

// Processes of one machine on its GPU. Each costs a worker process with a CUDA context (half a gigabyte on a real GPU).
inline constexpr size_t sessions_per_claim_max = 64;
// … and of all machines of a user: 16 GPUs' full.
inline constexpr size_t sessions_per_user_max = 1024;
// Threads that they may have together, for each GPU of the claim: a host has 32,768 or more for all. A session gets a quarter of
// what the others leave (thread_share.hpp), worker::threads_max at most, and at least so many: a worker at rest has some dozens.
inline constexpr size_t threads_per_claimed_gpu_max = 4096;
inline constexpr size_t threads_per_session_min = 64;
// … and that a user begins, in the long run and at once: each costs a worker's start, and the first one of a claim a line in
// the ledger and a wipe, none of which is paid for by who uses the GPU for a millisecond. A suite of short programs begins
// some ten a second. What comes beyond waits; how often it is tried again.
inline constexpr double sessions_begun_per_second_max = 5, sessions_begun_burst = 10'000;
inline constexpr milliseconds sessions_begun_looked_at_every{100};
// Requests of one key (in an open pool: of one machine) that wait for a worker, a GPU or the hardware's answer, and of all.
inline constexpr size_t waiting_requests_per_owner_max = 64;
inline constexpr size_t waiting_requests_max = 1024;

// … and of all keys of an account. A few accounts together may have all places: claim_queue.cpp says who gives up one then.
inline constexpr size_t waiting_requests_per_account_max = 256;
// The queue for GPUs that others use. A client that waits is told its place when that changes, and this often in any case;
// it then has a moment to ask again, or its place is gone. Of a server that has taken over all ask at once, and its host may be
// busy with more than that.
inline constexpr milliseconds place_told_every{5'000};
inline constexpr milliseconds place_kept_for{3'000};
inline constexpr milliseconds place_kept_over_reload{10'000};
inline constexpr milliseconds queue_looked_at_every{250};
// Lines of our log that tell of one user's coming and going in it, in the long run and at once: it costs nothing to do so.
inline constexpr double queue_lines_per_second_max = 1, queue_lines_burst = 60;

// A session whose client has not connected yet: how often we look whether the connection over which it was asked for is
// still there, and how long a client has to ask again over another one. Then it is over. A server that has taken over has
// closed that connection itself, and a client that has its answer need not ask again: so it has time to connect, too.
inline constexpr milliseconds asker_looked_at_every{200};
inline constexpr milliseconds asker_returns_within{1'000};
inline constexpr milliseconds asker_connects_over_reload{10'000};
// Who lets this many sessions in a row end without ever connecting gets no new claim for the first pause, and for twice as
// long each time that it happens again. So does a user with all his keys together, of whom he has a thousand and may make
// more; but one machine of his that cannot reach the workers' ports does not keep out the others.
inline constexpr int unconnected_sessions_max = 3, unconnected_sessions_per_user_max = 24;
inline constexpr milliseconds unconnected_pause_min{15'000};
inline constexpr milliseconds unconnected_pause_max{600'000};

// A worker whose client is gone says so within its grace (pool/patience.hpp). One that has not by then and this is ended.
inline constexpr milliseconds worker_notices_within{5'000};
// One that has said its last word, and is still there after this, is ended, too: others are told that its GPU is about to be
// free.
inline constexpr milliseconds ends_after_last_word{5'000};
inline constexpr milliseconds left_clients_looked_for_every{2'000};

// Host memory of a claim's workers, for each of its GPUs, is at most a GPU's share of three quarters of what there is; and
// never less than this, which is two code images of the largest size with something to spare.
inline constexpr uint64_t host_bytes_per_gpu_min = uint64_t{4} << 30;
inline constexpr milliseconds host_memory_looked_at_every{500};
// Files in memory, of which a worker may have thousands, are looked at when all of the host have changed by this much, or
// have been left alone for this long; and for so long each time.
inline constexpr uint64_t memory_files_looked_at_after = uint64_t{64} << 20;
inline constexpr milliseconds memory_files_looked_at_again_after{5'000};
inline constexpr milliseconds memory_files_looked_at_for{5};

// A program that was killed holds its GPU memory until its worker is sure that it does not come back, and gone itself. How
// long a program that needs that memory waits for it, and with how many wishes, before it hears that there is none.
inline constexpr milliseconds wish_held_for{3'000};
// How often a session is asked to give back memory that it does not use.
inline constexpr milliseconds asked_back_every{500};
inline constexpr size_t held_wishes_max = 64;

// A program that has ended may still be ending here when the machine's next one asks for more GPUs than it had.
inline constexpr milliseconds earlier_program_ends_within{2'000};

// How long a program that begins while this node is out of touch with its pool's store waits for that. Its client waits longer.
inline constexpr milliseconds pool_missed_for{5'000};

// A program has been told of a GPU and has not used it yet: it imports its libraries.
inline constexpr milliseconds described_for{30'000};

// A worker that must be started first: loading a driver and a context takes 1 to 3 s on real machines.
inline constexpr milliseconds worker_start_timeout{10'000};
// A warm worker dying younger than this says that something is wrong with the GPU, not with the worker's session…
inline constexpr milliseconds quick_death{30'000};
// … and after this many in a row, or as many failed wipes, the GPU is out of order: nobody gets it …
inline constexpr int strikes_max = 5;
inline constexpr milliseconds restart_delay{100};  // doubles with every strike
// … until it has been wiped and a worker has come up on it. That is tried again after the first pause, and after twice
// as long each time that it fails.
inline constexpr milliseconds out_of_order_min{10'000};
inline constexpr milliseconds out_of_order_max{600'000};
// What fails on this host, and not on the GPU (no descriptor, no process, no port), is tried again after a pause that
// doubles up to this, and never a strike.
inline constexpr milliseconds host_trouble_pause_max{5'000};

// How long a GPU stays as its last claim left it, so that the owner's next command finds it without a wipe. Whoever else
// wants it does not wait for that.
inline constexpr milliseconds default_linger{1000};

// Overwriting 80 GB takes 0.1 s; a driver that starts cold, a few seconds. Longer, and the GPU is stuck.
inline constexpr milliseconds wipe_timeout{60'000};
// How long it may take of each GPU to overwrite its memory twice and to read back, from when the memory is at hand. Reading
// back has what the writing leaves, and of each GPU it is at least wipe_checked_bytes_min. The next tenant waits for that, for
// the driver's start and for the helper's end: 300 ms are the aim.
inline constexpr milliseconds wipe_budget{200};
inline constexpr uint64_t wipe_checked_bytes_min = uint64_t{128} << 20;
// What a wipe may have less than an earlier one of the same GPU had: this, and of a large GPU a 64th. Where more is missing,
// another program of this host has it, and what is in it would come to the next tenant unwiped.
inline constexpr int64_t wipe_missing_bytes_max = int64_t{64} << 20;
inline constexpr uint64_t wipe_missing_share = 64;
// What is overwritten at once is at least the driver's own page.
inline constexpr uint64_t wipe_block_bytes_min = uint64_t{2} << 20;
// Memory of an emulated GPU is gone with its worker: the same code runs, on an amount that costs no time.
inline constexpr uint64_t emulated_wipe_bytes = uint64_t{16} << 20;

// Memory of a GPU that is never granted: the sessions' contexts, the driver's own needs, the display.
// One 32nd, and at most 1.5 GiB: three sessions' contexts on a large GPU.
inline constexpr uint64_t reserve_share = 32;
inline constexpr uint64_t reserve_bytes_max = uint64_t{3} << 29;

// How long an nvml request waits for the hardware to answer, and how often we look. Reading one GPU takes some ten
// milliseconds, waking it a second.
inline constexpr milliseconds nvml_patience{1500};
inline constexpr milliseconds nvml_retry{10};

// A worker that is told to end may say good-bye to its client; then it is killed.
inline constexpr milliseconds goodbye_grace{500};
// One that waits for programs before it stops: how often it looks whether there are any, and says whose.
inline constexpr milliseconds stopping_looked_every{200};
inline constexpr milliseconds stopping_told_every{10'000};
// A server that shall be replaced (replacing.hpp): until the new binary has answered, which nobody waits for, and which takes a
// busy machine with a cold disk some seconds; until all is at rest, which clients wait for no longer than 15 s; and how often
// that is looked at.
inline constexpr milliseconds handover_answered_within{30'000};
inline constexpr milliseconds handover_rests_within{8'000};
inline constexpr milliseconds handover_looked_every{5};
// Meanwhile it does not answer the operator's commands, for some tenths of a second: a busy machine takes longer.
inline constexpr milliseconds server_answers_within{10'000}, server_asked_every{100};
// The whole server's end; whatever still lives then dies with it.
inline constexpr milliseconds shutdown_grace{1500};
// How often what claims use is noted, which is how exact the ledger is after a crash. It costs some microseconds.
inline constexpr milliseconds alive_interval{1'000};
// How often the ledger is made durable. Together with the above: what a power cut may take of a claim.
inline constexpr milliseconds ledger_synced_every{2'000};
// What a claim's workers may say that it moved, each way in bytes, and for how many milliseconds it worked: they are fed by
// strangers, and sums of it must stay numbers.
inline constexpr int64_t claim_use_max = int64_t{1} << 60;
// And what none can have moved, whatever its network; and how much sooner it may have begun than we noted.
inline constexpr double bytes_moved_per_ms_max = 1e9;
inline constexpr milliseconds use_told_early{1'000};
// A worker that has work says so every heartbeat. Who has been silent for longer had none.
inline constexpr milliseconds busy_lasts{2'500};
// Lines of the ledger, and prices, in one answer: about 100 KiB, made in a millisecond.
inline constexpr int ledger_lines_per_answer = 256;
// And those that are added up for one: most are read, and few are said. Reading one costs as much of our time as so many bytes
// of an answer: an account has 180,000 of them at once, and then 46,000 a second.
inline constexpr int ledger_lines_per_sum = 1024;
inline constexpr size_t summed_line_costs_bytes = 22;
inline constexpr int prices_per_answer = 512;
// How often we look whether the keys of those that hold GPUs are still enrolled, and for a new key of our own: `user remove`
// and `rotate-key` are other processes.
inline constexpr milliseconds revocation_looked_for_every{500};
inline constexpr milliseconds keys_looked_at_every{500};

// How long an enrolment token may be good for, unless it is said, and at most.
inline constexpr std::chrono::seconds token_lasts{3600};
inline constexpr std::chrono::seconds token_lasts_max{30 * 24 * 3600};
// How long the server's old key goes on beside a new one, unless it is said, and at most: the time in which every client
// should have been there once.
inline constexpr std::chrono::seconds key_overlap{30 * 24 * 3600};
inline constexpr std::chrono::seconds key_overlap_max{365 * 24 * 3600};
// What `user limit --device-memory` takes: with less than one reservation of a driver nothing runs; and the ends of numbers.
inline constexpr uint64_t device_memory_limit_least = uint64_t{64} << 20, device_memory_limit_most = uint64_t{16} << 40;
// A user's place before others in the queue.
inline constexpr int priority_max = 100;

// The cache of code images, on disk. PyTorch's libraries for one type of GPU are about 1.5 GB as they travel: a tenant's
// limit is several versions of them, the whole cache's (unless the operator says otherwise) a few tenants'.
inline constexpr uint64_t tenant_image_bytes_max = uint64_t{8} << 30;
inline constexpr size_t tenant_images_max = 4096;  // of 256 KiB at least
inline constexpr uint64_t default_image_cache_mib = 32768;
// What must stay free where the cache is: the ledger is there, too.
inline constexpr uint64_t disk_bytes_kept_free = uint64_t{1} << 30;
// An image that nobody has used for this long goes. So do those of a tenant who is not enrolled any more.
inline constexpr std::chrono::hours images_unused_max{24 * 30};
inline constexpr milliseconds image_cache_tidied_every{3'600'000};

// Lines of our log about one tenant's images that are damaged or could not be kept, in the long run and at once.
inline constexpr double image_lines_per_second_max = 0.1, image_lines_burst = 20;

// Images that workers have handed over and that are not on the disk yet. They are in memory. What comes beyond is left to
// the next program that brings it. No tenant may have more than half of the bytes.
inline constexpr uint64_t arriving_image_bytes_max = uint64_t{4} << 30;
inline constexpr size_t arriving_images_max = 256;
// Helpers that write at once: two keep a disk busy.
inline constexpr size_t image_writers_max = 2;
// Writing 1 GiB takes a minute on a slow disk. Longer, and the disk is stuck.
inline constexpr milliseconds image_write_timeout{120'000};

// Other nodes are asked what they have while somebody watches this one: as many as a page shows, how often, and for how long
// after it was looked at last. What they said is good for a while; one that is silent is left alone for a while, and whoever
// looks meanwhile is told so at once.
inline constexpr size_t fellows_asked_max = 64;
// Nodes that have gone within the last day and are named.
inline constexpr size_t fellows_gone_max = 256;
inline constexpr milliseconds fellows_asked_every{2'000}, fellows_wanted_for{15'000}, fellow_good_for{5'000};
// `status` waits for so long for what they say, and looks so often.
inline constexpr milliseconds fellows_waited_for{3'000}, fellows_looked_at_every{100};
// The last day, which the page asks for every half a minute.
inline constexpr milliseconds fellow_days_asked_every{15'000}, fellow_days_wanted_for{70'000};
inline constexpr milliseconds fellow_day_good_for{60'000};
// And so often while nobody looks, in case that a node goes: as often as a node reads its ledger for that (watch/limits.hpp).
inline constexpr milliseconds fellow_days_noted_every{15'000};
inline constexpr milliseconds fellow_answers_within{500}, silent_fellow_left_alone{10'000};
// How far another node's clock may be from ours before the log says so. An answer is half a second old at most.
inline constexpr milliseconds clocks_differ_by{5'000};
// Connections to them, with those that are still ending: that takes as long as a silent name server makes ZeroMQ wait. For how
// long we wait for it.
inline constexpr size_t fellow_lines_max = 2 * fellows_asked_max;
inline constexpr milliseconds fellow_line_ends_within{500};

// A server that is killed leaves children behind which it was just starting: they have its lock until they have become
// somebody else.
inline constexpr milliseconds state_folder_let_go_within{2'000};

// Changes of the accounts that wait for the store: of all callers, and each is some hundred bytes; and of one user.
inline constexpr size_t errands_max = 256;
inline constexpr size_t errands_per_user_max = 16;
// Changes that one user makes, in the long run and at once: each is written on the disks of a whole etcd, and told to every
// node. A user has 1,024 machines at most.
inline constexpr double changes_per_second_max = 5;
inline constexpr double changes_burst = 1200;

// ---- Other nodes of the pool.

// A server that the pool does not take in within this ends; and how often it looks.
inline constexpr milliseconds join_timeout{15'000}, store_tried_again_after{500};
inline constexpr milliseconds join_looked_at_every{50};
// A worker that nobody has come to for this long hears that the lease lasts longer. Most never need to: what they were told
// first lasts twice as long, and a client takes milliseconds.
inline constexpr milliseconds lease_told_after{800};
// A request goes from node to node at most so often; then it stays where it is.
inline constexpr int hops_max = 4;
// What is free here is told to the others when this has passed: several changes at once are one.
inline constexpr milliseconds capacity_told_after{10};
// Requests of one key that wait for what the pool's store says of the other nodes. One beyond them goes by what is known.
inline constexpr size_t looks_per_owner_max = 256;
// Refusals that wait for what the others have free, to name a type that is. Those beyond go by what is known.
inline constexpr size_t refusals_looking_max = 256;
// While somebody waits here, how often the others are asked what they have.
inline constexpr milliseconds others_asked_every{1'000};
// How long we count whom we have sent to another node as being there, until that node says so itself; and how many.
inline constexpr milliseconds sent_remembered_for{1'000};
inline constexpr size_t sent_max = 4096;
inline constexpr int sent_per_user_max = 256;
// Names of nodes that were there once.
inline constexpr size_t nodes_remembered_max = 4096;
// Between two looks at all that the pool's store has: a user who asks in a loop costs it no more than that.
inline constexpr milliseconds look_at_all_pause_min{50};
inline constexpr milliseconds look_at_all_pause_max{2'000};

// What processes of a claim lend each other (exchange.hpp): each is a descriptor here. PyTorch lends one for each block of
// its cache that a shared tensor lies in. A claim on a node of more than four GPUs has its GPUs' part of things_max.
inline constexpr size_t things_of_claim_max = 4096;
inline constexpr size_t things_max = 16384;

// One message between supervisor and worker: the description of 16 devices is about 100 KiB.
inline constexpr size_t worker_message_bytes_max = size_t{256} << 10;

}  // namespace tnr::server
