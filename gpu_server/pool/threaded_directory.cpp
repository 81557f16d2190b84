// A Directory over any Backend: four threads that wait for it, and the owner's picture of the pool. See directory.hpp.
#include <atomic>
#include <deque>
#include <random>
#include <set>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/directory_jobs.hpp"
#include "gpu_server/pool/directory_times.hpp"
#include "gpu_server/pool/directory_view.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {

using std::chrono::milliseconds;

namespace {

class ThreadedDirectory : public Directory {
public:
    ThreadedDirectory(std::unique_ptr<Backend> backend, Post post, LeaseTimes times)
        : backend_(std::move(backend)), post_(std::move(post)), times_(times) {
        follower_ = std::thread([this] { follow(); });
        looker_ = std::thread([this] { answer(); });
    }
    ~ThreadedDirectory() override { stop(); }

    void on_change(std::function<void()> changed) override { changed_ = std::move(changed); }

    void join(PoolNode self, std::optional<Tenure> before) override {
        {
            LockGuard lock(mutex_);
            self_ = std::move(self);
            if (before && heard_nameless_) ++follow_anew_;
        }
        if (before) go_on(*before);
        keeper_ = std::thread([this, registered = before.has_value(), standing = standing_] {
            if (registered) renew(standing);
            keep_registered(!registered);
        });
        writer_ = std::thread([this] { write(); });
    }

    Tenure hand_over() override {
        stop();
        LockGuard lock(mutex_);
        Tenure tenure{backend_->lease(), standing_, {}};
        for (auto& [id, claim] : own_) tenure.claims.push_back(claim);
        return tenure;
    }

    void tell(const TypeCounts& types) override {
        {
            LockGuard lock(mutex_);
            has_now(types);
        }
        to_write_.notify_one();
    }

    void tell_key(const std::string& server_key) override {
        {
            LockGuard lock(mutex_);
            if (self_.server_key == server_key) return;
            self_.server_key = server_key;
            untold_.node = true;
        }
        to_write_.notify_one();
    }

    void leave() override {
        if (!keeper_.joinable()) return;
        tell_to_stop();  // before the follower is woken by what leave() removes
        keeper_.join();
        writer_.join();
        backend_->leave(self());
        stop();
    }

    void add_claim(const PoolClaim& claim, const TypeCounts& types, Unless unless,
                   std::function<void(Result<int64_t>)> done) override {
        {
            LockGuard lock(mutex_);
            has_now(types);
            own_[claim.id] = claim;  // a registration that happens meanwhile has it, too
            jobs_.push_back({claim, std::move(done), {}});
            if (unless == Unless::others) jobs_.back().none_since = view_.claims_as_of(claim.account);
        }
        to_write_.notify_one();
    }

    void remove_claim(int64_t id, const TypeCounts& types) override {
        {
            LockGuard lock(mutex_);
            has_now(types);
            if (auto found = own_.extract(id)) jobs_.push_back({std::move(found.mapped()), nullptr, {}});
        }
        to_write_.notify_one();
    }

    void look(const Question& question, std::function<void()> then) override {
        if (boot_ms() >= good_until_) return tell_owner(std::move(then));  // the store does not answer
        std::string from;
        if (auto& all = view_.nodes(); !question.free.empty() && !all.empty())
            from = std::next(all.begin(), static_cast<int>(random_() % all.size()))->first;
        {
            LockGuard lock(mutex_);
            questions_.push_back({question, std::move(from), std::move(then)});
        }
        to_look_.notify_one();
    }

    const std::map<std::string, PoolNode>& nodes() const override { return view_.nodes(); }
    const std::map<std::string, PoolClaim>& claims() const override { return view_.claims(); }
    const Standing& standing() const override { return standing_; }

private:
    void tell_to_stop() {
        {
            LockGuard lock(mutex_);
            stop_.ring();
        }
        backend_->give_up_writing();
        for (auto* condition : {&to_write_, &to_look_, &to_stop_}) condition->notify_all();
    }
    void stop() {
        tell_to_stop();
        for (auto* thread : {&keeper_, &writer_, &follower_, &looker_})
            if (thread->joinable()) thread->join();
        *alive_ = false;
    }

    // On the owner's thread, unless we are gone by then.
    void tell_owner(std::function<void()> what) {
        post_([alive = alive_, what = std::move(what)] {
            if (*alive) what();
        });
    }
    void tell_standing(Standing standing) {
        good_until_ = standing.joined ? standing.until_ms : 0;
        tell_owner([this, standing = std::move(standing)] {
            standing_ = standing;
            if (changed_) changed_();
        });
    }

    void has_now(const TypeCounts& types) TNR_REQUIRES(mutex_) {
        if (self_.types == types) return;
        self_.types = types;
        untold_.free = true;
    }
    PoolNode self() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return self_;
    }
    // Or until the registration with this fence has gone from the store.
    void pause(milliseconds time, int64_t fence = INT64_MAX) TNR_EXCLUDES(mutex_) {
        UniqueLock lock(mutex_);
        to_stop_.wait_for(mutex_, time, [&] { return stop_.rung() || removed_at_ > fence; });
    }

    // ---- the lease

    // What this process has of new about the node is told, and what was to be removed when the one before ended.
    void go_on(const Tenure& before) {
        standing_ = before.standing;
        if (times_.alone) standing_.until_ms = INT64_MAX;
        fence_ = standing_.fence;
        good_until_ = standing_.until_ms;
        backend_->go_on(self(), before.lease, {standing_.fence, standing_.refused, standing_.pool});
        {
            LockGuard lock(mutex_);
            for (auto& claim : before.claims) own_[claim.id] = claim;
            untold_ = {true, true};
        }
        in_doubt();
    }

    void keep_registered(bool first) {
        std::string told;
        while (!stop_.rung()) {
            auto asked = boot_ms();
            removed_at_ = 0;
            PoolNode self;
            std::vector<PoolClaim> claims;
            {
                LockGuard lock(mutex_);
                self = self_;
                for (auto& [id, claim] : own_) claims.push_back(claim);
            }
            auto made = backend_->join(self, claims);
            if (!made) {
                if (std::exchange(told, made.error().what) != made.error().what)
                    log(LogLevel::warning, "not a node of the pool: " + made.error().what);
                tell_standing({.trouble = made.error().what, .hint = made.error().hint});
                first = false;
                pause(register_again_after);
                continue;
            }
            told.clear();
            for (auto& gpu : made->refused)
                log(LogLevel::warning, "GPU " + gpu + " belongs to another node of the pool: not served here");
            log(LogLevel::info, "node " + self.name + " of the pool, registration " + std::to_string(made->fence));
            fence_ = made->fence;
            // Before a process's first registration it has written nothing; what an earlier one wrote has gone with its lease.
            if (!std::exchange(first, false) || !claims.empty()) in_doubt();
            Standing standing{true, made->fence, certain_from(asked), {}, made->refused, made->fence, made->pool};
            tell_standing(standing);
            renew(standing);
        }
    }

    int64_t certain_from(int64_t asked_ms) const {
        return times_.alone ? INT64_MAX : asked_ms + times_.ttl_s * 1000 - times_.margin_ms;
    }

    // Until the lease is gone.
    void renew(Standing standing) {
        auto ask_again_at = boot_ms() + refused_asked_every.count();
        auto asked = boot_ms();
        // Counted from the last question: the lease is, too, and a slow answer leaves less of it.
        const auto until_next = [&] {
            return milliseconds(std::max<int64_t>(asked + times_.renewed_ms - boot_ms(), 0));
        };
        for (bool failed = false; !stop_.rung(); pause(failed ? renew_again_after : until_next(), standing.fence)) {
            asked = boot_ms();
            auto there = backend_->renew();
            if (removed_at_ > standing.fence || (there && !*there)) {
                log(LogLevel::warning, "the pool has taken this node for dead: it registers again");
                fence_ = 0;
                return tell_standing({.trouble = "this node was out of touch with the pool for too long"});
            }
            if (there) {
                if (std::exchange(failed, false)) {
                    log(LogLevel::info, "the pool's store answers again");
                    ++follow_anew_;  // its connection may be broken without a word
                }
                standing.until_ms = certain_from(asked);
                standing.trouble.clear(), standing.hint.clear();
                if (!standing.refused.empty() && boot_ms() > ask_again_at) {
                    ask_again_at = boot_ms() + refused_asked_every.count();
                    if (auto adopted = backend_->adopt(self(), standing.fence, standing.refused)) {
                        standing.refused = adopted->refused;
                        standing.gpus_fence = std::max(standing.gpus_fence, adopted->fence);
                    }
                }
            } else {
                if (!std::exchange(failed, true)) log(LogLevel::warning, there.error().what);
                standing.trouble = there.error().what, standing.hint = there.error().hint;
            }
            tell_standing(standing);
        }
    }

    // ---- what changes

    void write() {
        while (true) {
            DirectoryJob job;
            Untold tell;
            {
                UniqueLock lock(mutex_);
                to_write_.wait(
                    mutex_, [this]() TNR_REQUIRES(mutex_) { return stop_.rung() || !jobs_.empty() || untold_.any(); });
                if (stop_.rung()) return;
                if (jobs_.empty()) {
                    tell = std::exchange(untold_, {});
                } else {
                    job = std::move(jobs_.front());
                    jobs_.pop_front();
                }
            }
            if (tell.any())
                tell_pool(tell);
            else if (job.done)
                add(job);
            else
                remove(job.claim);
        }
    }

    // What is to be told goes along with a claim, which costs the store no more than the claim alone.
    std::optional<PoolNode> telling() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        if (!std::exchange(untold_.free, false)) return std::nullopt;
        return self_;
    }
    void not_told(const Untold& what) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        untold_.add(what);
    }
    void tell_pool(Untold what) {
        auto fence = fence_.load();
        if (fence == 0) return;  // the next registration says it
        if (what.node && backend_->tell_node(self(), fence)) what.node = false;
        if (what.free && backend_->tell_free(self(), fence)) what.free = false;
        if (!what.any()) return;
        not_told(what);
        in_doubt(what);
        pause(write_again_after);
    }

    // Of a registration whose lease is good; else 0.
    int64_t good_fence() const { return !stop_.rung() && boot_ms() < good_until_ ? fence_.load() : 0; }

    void add(DirectoryJob& job) {
        Result<Backend::Added> added = not_registered();
        while (auto fence = good_fence()) {
            auto tell = telling();
            added = backend_->add(job.claim, fence, tell ? &*tell : nullptr, job.none_since);
            if (tell && !(added && added->fence)) not_told({.free = true});
            if (added && added->gone && fence_ != fence) continue;  // registered anew meanwhile
            if (added && added->gone) return refuse_unregistered(job, fence);
            if (added) break;
            // Also where it is refused: what is free here is held there, and by nobody else.
            in_doubt({.free = tell.has_value()});
            if (added.error().kind != Error::Kind::network) break;
            pause(write_again_after);
        }
        // Too late is as good as not at all: others may have taken us for dead when it was done.
        if (added && boot_ms() >= good_until_)
            added = Error{Error::Kind::network, "the pool's store took too long", "try again"};
        tell_owner([this, account = job.claim.account, done = std::move(job.done), added = std::move(added)] {
            if (!added) return done(added.error());
            view_.take({.accounts = {account}}, added->claims);
            done(added->fence);
        });
    }

    // The store says so before the keeper hears of it. Who is refused finds that this node is out of touch.
    void refuse_unregistered(DirectoryJob& job, int64_t fence) {
        tell_owner([this, fence, done = std::move(job.done)] {
            if (standing_.fence == fence) standing_.joined = false;
            done(not_registered());
        });
        note_removal({.all = true, .entries = {}, .as_of = fence + 1});
    }

    // What it refuses together with what is free now it may do alone: a full store takes nothing in.
    void remove(const PoolClaim& claim) {
        for (bool refused = false; !stop_.rung();) {
            const auto fence = fence_.load();
            auto tell = refused || fence == 0 ? std::nullopt : telling();
            auto removed = backend_->remove(claim, fence, tell ? &*tell : nullptr);
            if (tell && !(removed && *removed)) not_told({.free = true});
            if (removed) return;
            // What was to be added before may be written as late as this.
            in_doubt({.free = tell.has_value()});
            if (!refused && removed.error().kind != Error::Kind::network) {
                refused = true;
                continue;
            }
            refuse_waiting();
            pause(write_again_after);
        }
    }

    // Nobody shall wait for an answer behind something that has to be repeated.
    void refuse_waiting() {
        if (boot_ms() < good_until_) return;
        auto refused = [this] {
            LockGuard lock(mutex_);
            return take_claims(jobs_);
        }();
        for (auto& job : refused) add(job);  // the lease is over: an Error, at once
    }

    // ---- what is looked for

    void answer() {
        int64_t look_at_own_at = 0;
        while (true) {
            std::deque<DirectoryQuestion> asked;
            {
                UniqueLock lock(mutex_);
                if (boot_ms() >= doubt_until_) tell_again();
                auto wanted = [this]() TNR_REQUIRES(mutex_) { return stop_.rung() || !questions_.empty(); };
                if (boot_ms() < doubt_until_)
                    to_look_.wait_for(mutex_, doubt_looked_at_every, wanted);
                else
                    to_look_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return wanted() || boot_ms() < doubt_until_; });
                if (stop_.rung()) return;
                asked.swap(questions_);
            }
            if (!asked.empty()) answer(std::move(asked));
            if (boot_ms() >= doubt_until_ || boot_ms() < look_at_own_at) continue;
            look_at_own_at = boot_ms() + doubt_looked_at_every.count();
            remove_leftovers();
        }
    }

    // Those who asked while the last answer was fetched have one answer.
    void answer(std::deque<DirectoryQuestion> asked) {
        Question all;
        for (auto& one : asked) all = together(std::move(all), one.question);
        auto found = backend_->look(all, asked.front().from);
        tell_owner([this, all = std::move(all), found = std::move(found), asked = std::move(asked)] {
            if (found) view_.take(all, *found);
            for (auto& one : asked) one.then();
        });
    }

    // Nothing of before is written any more: whatever was last, this is.
    void tell_again() TNR_REQUIRES(mutex_) {
        untold_.add(std::exchange(told_in_doubt_, {}));
        if (untold_.any()) to_write_.notify_one();
    }

    // `told`: whose answer was lost, so that it may be written after what is told next.
    void in_doubt(const Untold& told = {}) {
        {
            LockGuard lock(mutex_);
            told_in_doubt_.add(told);
            doubt_until_ = boot_ms() + doubt_lasts.count();
        }
        to_look_.notify_one();
    }

    // Claims of ours in the store that we do not have. A registration, or the writing of a claim, whose answer we did
    // not wait for can be done after the claim was removed: it would be on its GPUs for as long as our lease lasts.
    void remove_leftovers() {
        if (fence_ == 0) return;  // these may be another server's that has our name
        auto found = backend_->claims_of(self().name);
        if (!found) return;
        LockGuard lock(mutex_);
        for (auto& entry : *found) {
            auto claim = claim_from_text(entry.text.value_or(""));
            auto being_removed = [&](const DirectoryJob& job) { return job.claim.id == claim->id; };
            if (!claim || own_.count(claim->id) || std::any_of(jobs_.begin(), jobs_.end(), being_removed)) continue;
            log(LogLevel::debug, "claim " + std::to_string(claim->id) + " has ended: removed from the pool once more");
            jobs_.push_back({*claim, nullptr, {}});
            to_write_.notify_one();
        }
    }

    // ---- what others do

    // Its lease may be as it was: an operator may have removed it, or all there was, also before we followed.
    void note_removal(const Change& change) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        heard_nameless_ |= self_.name.empty();
        int64_t removed_at = change.all && !self_.name.empty() ? change.as_of : 0;
        for (auto& entry : change.entries)
            if (entry.name == "nodes/" + self_.name) removed_at = entry.text ? 0 : entry.fence;
        removed_at_ = std::max(removed_at_.load(), removed_at);
        to_stop_.notify_all();
    }

    void follow() {
        while (!stop_.rung()) {
            auto anew = follow_anew_.load();
            const StopAsked stopped{[this, anew] { return stop_.rung() || follow_anew_ != anew; }, stop_.fd()};
            (void)backend_->follow(
                [&](const Change& change) {
                    note_removal(change);
                    tell_owner([this, change] {
                        view_.apply(change);
                        if (changed_) changed_();
                    });
                    return !stopped();
                },
                stopped);
            if (!stopped()) pause(follow_again_after);
        }
    }

    std::unique_ptr<Backend> backend_;
    Post post_;
    LeaseTimes times_;
    Bell stop_;
    std::atomic<int64_t> fence_{0}, good_until_{0}, doubt_until_{0}, removed_at_{0};
    std::atomic<int> follow_anew_{0};
    Mutex mutex_;
    Condition to_write_, to_look_, to_stop_;  // for the writer, the looker, and whoever pauses
    PoolNode self_ TNR_GUARDED_BY(mutex_);    // its name is empty until join()
    bool heard_nameless_ TNR_GUARDED_BY(mutex_) = false;
    Untold untold_ TNR_GUARDED_BY(mutex_);
    Untold told_in_doubt_ TNR_GUARDED_BY(mutex_);  // to be told once more when the doubt is over
    std::deque<DirectoryJob> jobs_ TNR_GUARDED_BY(mutex_);
    std::deque<DirectoryQuestion> questions_ TNR_GUARDED_BY(mutex_);
    std::map<int64_t, PoolClaim> own_ TNR_GUARDED_BY(mutex_);  // that a registration has to name

    // The owner's thread.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
    std::function<void()> changed_;
    DirectoryView view_;
    std::minstd_rand random_{std::random_device{}()};
    Standing standing_;

    std::thread keeper_, writer_, follower_, looker_;
};

}  // namespace

std::unique_ptr<Directory> make_directory(std::unique_ptr<Backend> backend, Post post, LeaseTimes times) {
    return std::make_unique<ThreadedDirectory>(std::move(backend), std::move(post), times);
}

}  // namespace tnr::server
