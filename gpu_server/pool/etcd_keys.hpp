// What of nodes and claims is where in etcd, all under the pool's prefix:
//
//   view/nodes/NAME        under the node's lease: what to_text(PoolNode) says. Its create revision is the node's fence.
//   view/drains/NAME       there: the node begins no claims
//   free/TYPE/NAME         under the lease: to_text(TypeCount)
//   claims/NAME/ID         under the lease: to_text(PoolClaim)
//   owners/ACCOUNT/NAME/ID     the same, to be found by its account. Not beside what etcd_store.cpp has of the accounts: every
//                          node follows that, and would be told of every claim.
//   members/NAME           the identity of the server that has this name, also while it is away
//   gpus/UUID              the node that the GPU belongs to, likewise
//   held/UUID              under the lease: the claim that has the GPU; it comes and goes with the claim's entries, in one
//                          transaction, since what a node has left is found by those
//   identity               of the pool: by chance, so that an etcd that begins anew is another pool
//   history                changes whenever a node has etcd forget what was
#pragma once

#include <string>

#include "gpu_server/pool/directory.hpp"

namespace tnr::server {

// Names of nodes, accounts and GPU types have no slashes.
struct EtcdKeys {
    std::string prefix;
    std::string view() const { return prefix + "view/"; }
    std::string node(const std::string& name) const { return view() + "nodes/" + name; }
    std::string free() const { return prefix + "free/"; }
    std::string free(const std::string& type) const { return free() + type + "/"; }
    std::string claims() const { return prefix + "claims/"; }
    std::string claims_of(const std::string& node) const { return claims() + node + "/"; }
    std::string account(const std::string& account) const { return prefix + "owners/" + account + "/"; }
    std::string claim(const PoolClaim& claim) const { return claims() + claim_name(claim.node, claim.id); }
    std::string of_account(const PoolClaim& claim) const {
        return account(claim.account) + claim_name(claim.node, claim.id);
    }
    std::string drain(const std::string& name) const { return view() + "drains/" + name; }
    std::string members() const { return prefix + "members/"; }
    std::string member(const std::string& name) const { return members() + name; }
    std::string gpus() const { return prefix + "gpus/"; }
    std::string gpu(const std::string& uuid) const { return gpus() + uuid; }
    std::string held(const std::string& uuid) const { return prefix + "held/" + uuid; }
    std::string identity() const { return prefix + "identity"; }
    std::string history() const { return prefix + "history"; }
};

}  // namespace tnr::server
