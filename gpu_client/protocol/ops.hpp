// The records that are not driver calls: the session's own. Ids of driver calls are in cuda.calls (below 0xf000). What
// the records hold: session_records.hpp, code_records.hpp, graph_records.hpp; what the link's hold: link.hpp.
#pragma once

#include <cstdint>

namespace tnr::wire {

enum SessionOp : uint16_t {
    // client → worker
    op_set_context = 0xf001,
    op_memory_grant = 0xf002,
    op_memory_map = 0xf003,
    op_memory_unmap = 0xf004,
    op_watch_event = 0xf005,
    op_watch_stream = 0xf006,
    op_host_function_done = 0xf007,
    op_goodbye = 0xf008,
    op_image_piece = 0xf009,
    op_image_offer = 0xf00a,
    op_profile = 0xf00b,
    op_move_range = 0xf010,
    op_memory_access = 0xf011,
    op_memory_info = 0xf012,
    op_query_event = 0xf013,
    op_query_stream = 0xf014,
    op_capture_host_function = 0xf015,
    op_graph_for_kernels = 0xf016,
    op_borrow_multicast = 0xf017,
    op_order_graph = 0xf018,
    op_memory_returned = 0xf019,
    op_function_sees = 0xf01a,
    op_create_tile_pool = 0xf01b,
    op_unmap_tiles = 0xf01c,

    // The link's own, in batches without a number (link.hpp).
    op_hello = 0xf0f1,  // client → worker. u64 connection: the first word of every connection, which it counts from 1
    op_welcome = 0xf0f2,  // worker → client. u64 connection: the answer to its hello
    op_lane = 0xf0f3,     // client → worker, first over each lane. u64 connection that it belongs to
    op_port = 0xf0f4,  // client → worker, if it asks. u64 TCP port that this connection comes from, at the client's end

    // worker → client
    op_completed = 0xf101,
    op_failed = 0xf102,
    op_printed = 0xf103,
    op_run_host_function = 0xf104,
    op_bulk_down = 0xf105,
    op_goodbye_worker = 0xf106,
    op_kernels_described = 0xf107,
    op_profiled = 0xf108,
    op_run_graph_function = 0xf109,
    op_user_object_gone = 0xf10a,
    op_memory_shared = 0xf110,
    op_memory_wanted = 0xf111,
};

}  // namespace tnr::wire
