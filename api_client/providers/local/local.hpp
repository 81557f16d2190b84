// The provider `local`: machines are QEMU processes on this host. See README.md in api_client/.
#pragma once

#include <filesystem>
#include <optional>

#include "api_client/provider.hpp"
#include "api_client/providers/local/image.hpp"
#include "api_client/providers/local/machine_store.hpp"
#include "api_client/providers/local/qemu.hpp"
#include "api_client/providers/local/snapshots.hpp"

namespace tnr::local {

// Safe to use from several processes at once: whoever changes a machine holds its lock.
class LocalProvider : public Provider {
public:
    LocalProvider(std::filesystem::path machines, std::filesystem::path cache)
        : store_(machines), snapshots_(machines.parent_path() / "local-snapshots"), cache_(std::move(cache)) {}

    std::string name() const override { return "local"; }
    Result<std::string> whoami() override;
    std::string pool_host() const override;
    Result<std::vector<Offer>> offers() override;
    Result<> check(const Order& order) override;
    Result<Machine> create(const Order& order) override;
    Result<Machine> machine(const std::string& id) override;
    Result<std::vector<Machine>> machines() override;
    // Presses the power button, and pulls the plug when the guest has not gone in `stop_limit_ms`.
    Result<> stop(const std::string& id) override;
    Result<> start(const std::string& id) override;
    Result<> destroy(const std::string& id) override;
    Result<> resize(const std::string& id, const std::string& offer) override;
    // Of a stopped machine: what a running one has not written yet would be missing.
    Result<> snapshot(const std::string& id, const std::string& name) override;
    Result<std::vector<Snapshot>> snapshots() override;
    Result<> delete_snapshot(const std::string& id) override;

private:
    Result<UniqueFd> stopped_machine(const std::string& id, const std::string& what) const;
    Result<Image> image_of(const std::string& image) const;
    Result<> fill(const std::filesystem::path& folder, const Order& order, const Offer& offer,
                  const Image& image) const;
    Result<> launch(const std::string& name, const OnStep& on_step);
    Machine describe(const Record& record) const;

    MachineStore store_;
    Snapshots snapshots_;
    std::filesystem::path cache_;
};

}  // namespace tnr::local
