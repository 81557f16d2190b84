// Whether KVM may be used. There are hosts where /dev/kvm opens, even runs a few instructions, and where every
// kernel then hangs or QEMU aborts (seen on nested virtualisation): only a kernel that has run proves it.
#pragma once

#include <filesystem>
#include <optional>

namespace tnr::local {

// Boots this kernel under KVM, without a disk, until it gives up looking for one: about a second where KVM works,
// `probe_limit_ms` where it hangs. The answer is kept in `cache` until the host boots again.
bool kvm_works(const std::filesystem::path& kernel, const std::filesystem::path& cache);

// What the last probe since the host booted has found out; nothing where there was none.
std::optional<bool> kvm_answer(const std::filesystem::path& cache);

// The name of `cache` in tnr's cache folder.
inline constexpr const char* kvm_answer_file = "kvm-probe";
inline constexpr int probe_limit_ms = 8'000;  // ten times what it takes on an idle host

}  // namespace tnr::local
