// What `tnr start` says: of a machine that is not as it was asked for, of one that is ready, and of what there is when it
// could not go on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_out.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// A machine keeps the size, the place and the image that it was made with (`old`); other ones are for another machine.
Result<> keeps_its_shape(const Record& old, const Record& wanted, const Machine& machine, Provider& provider);
// And, where the cloud brings GPUs, the GPU. `wanted` has the one that was asked for.
Result<> keeps_own_gpu(const Record& wanted, const Machine& machine);

// What a machine at a cloud with GPUs of its own is refused: one of a pool's, and to switch itself off.
Error has_no_pool(const Record& record, const std::string& pool);
Error stays_on(const Record& record);
Error ended_while_booting(const std::optional<Machine>& machine);  // nothing: it is gone
// A machine of that name is there, of which nobody here knows.
Error name_is_taken(const Record& record);

// "cx22 in fsn1, "
std::string size_text(const Offer& offer);
// ", $37.22 a month"; empty for what is free or unknown.
std::string month_text(const Price& price);

// What the record's GPUs cost while they are used, as the pool says.
std::string gpu_price_text(Pool& pool, const Record& record);

// "NVIDIA H100, 80.0 GiB; …"
std::string gpus_text(const std::vector<SeenGpu>& gpus);
nlohmann::json gpus_json(const std::vector<SeenGpu>& gpus);

// What --dry-run says. `size`: of a machine that is new, else empty; no pool: the price has the GPUs in it.
std::string plan_text(const Record& record, const std::string& size, const Price& price, Pool* pool);

// What the order will be, as far as its price depends on it.
Order order_of(const Record& record, bool own_gpus);

struct HowStarted {
    bool no_wait = false, was_running = false;
};
void tell_started(Session& session, const Record& record, const Machine& machine, const Provider& provider,
                  const HowStarted& how);

// Nothing that costs money is ever forgotten: whatever went wrong, the user hears what there is now.
Error with_what_exists(Error error, const Record& record, const Machine& machine);

}  // namespace tnr::cli
