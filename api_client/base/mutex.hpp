// Locks whose rules the compiler knows. clang checks them with -Wthread-safety; elsewhere the attributes are empty.
//
//     Mutex mutex_;
//     Condition ended_;
//     std::list<Copy> copies_ TNR_GUARDED_BY(mutex_);      // touched only while mutex_ is held
//     void remove_locked() TNR_REQUIRES(mutex_);           // the caller holds it
//     void wait_for_copies() TNR_EXCLUDES(mutex_);         // the caller does not: takes it, or blocks
//
// A lambda is a function of its own to clang: one that runs under a lock says so, as in
//     ended_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return copies_.empty(); });
// A function that lets go of its caller's lock for a while is marked TNR_REQUIRES and calls mutex_.unlock() and
// mutex_.lock() itself: clang cannot follow a UniqueLock that is passed on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

#ifdef __clang__
#define TNR_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define TNR_THREAD_SAFETY(attribute)
#endif

// Of types.
#define TNR_CAPABILITY(name) TNR_THREAD_SAFETY(capability(name))
#define TNR_SCOPED_CAPABILITY TNR_THREAD_SAFETY(scoped_lockable)
// Of members and global variables. PT_: what the pointer points to, not the pointer.
#define TNR_GUARDED_BY(mutex) TNR_THREAD_SAFETY(guarded_by(mutex))
#define TNR_PT_GUARDED_BY(mutex) TNR_THREAD_SAFETY(pt_guarded_by(mutex))
// Of functions.
#define TNR_REQUIRES(...) TNR_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define TNR_EXCLUDES(...) TNR_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define TNR_ACQUIRE(...) TNR_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define TNR_RELEASE(...) TNR_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define TNR_ACQUIRE_SHARED(...) TNR_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define TNR_RELEASE_SHARED(...) TNR_THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define TNR_TRY_ACQUIRE(...) TNR_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define TNR_RETURN_CAPABILITY(mutex) TNR_THREAD_SAFETY(lock_returned(mutex))
// For what clang cannot follow. Say beside it why it is right.
#define TNR_NO_THREAD_SAFETY_ANALYSIS TNR_THREAD_SAFETY(no_thread_safety_analysis)

namespace tnr {

// A std::mutex with attributes.
class TNR_CAPABILITY("mutex") Mutex {
public:
    Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() TNR_ACQUIRE() { mutex_.lock(); }
    void unlock() TNR_RELEASE() { mutex_.unlock(); }
    bool try_lock() TNR_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

private:
    friend class Condition;
    std::mutex mutex_;
};

// Holds a mutex to the end of the scope.
class TNR_SCOPED_CAPABILITY LockGuard {
public:
    explicit LockGuard(Mutex& mutex) TNR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~LockGuard() TNR_RELEASE() { mutex_.unlock(); }
    LockGuard(const LockGuard&) = delete;
    LockGuard& operator=(const LockGuard&) = delete;

private:
    Mutex& mutex_;
};

// Holds a mutex to the end of the scope, and can let go of it in between.
class TNR_SCOPED_CAPABILITY UniqueLock {
public:
    explicit UniqueLock(Mutex& mutex) TNR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    // Only unlocks what it holds, which clang knows from the calls below.
    ~UniqueLock() TNR_RELEASE() {
        if (held_) mutex_.unlock();
    }
    UniqueLock(const UniqueLock&) = delete;
    UniqueLock& operator=(const UniqueLock&) = delete;

    void lock() TNR_ACQUIRE() {
        mutex_.lock();
        held_ = true;
    }
    void unlock() TNR_RELEASE() {
        held_ = false;
        mutex_.unlock();
    }

private:
    Mutex& mutex_;
    bool held_ = true;
};

// A std::shared_mutex with attributes: one thread that writes what it guards, or many that read it.
class TNR_CAPABILITY("mutex") SharedMutex {
public:
    SharedMutex() = default;
    SharedMutex(const SharedMutex&) = delete;
    SharedMutex& operator=(const SharedMutex&) = delete;

    void lock() TNR_ACQUIRE() { mutex_.lock(); }
    void unlock() TNR_RELEASE() { mutex_.unlock(); }
    void lock_shared() TNR_ACQUIRE_SHARED() { mutex_.lock_shared(); }
    void unlock_shared() TNR_RELEASE_SHARED() { mutex_.unlock_shared(); }

private:
    std::shared_mutex mutex_;
};

// Holds a shared mutex to the end of the scope, for writing.
class TNR_SCOPED_CAPABILITY ExclusiveLock {
public:
    explicit ExclusiveLock(SharedMutex& mutex) TNR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~ExclusiveLock() TNR_RELEASE() { mutex_.unlock(); }
    ExclusiveLock(const ExclusiveLock&) = delete;
    ExclusiveLock& operator=(const ExclusiveLock&) = delete;

private:
    SharedMutex& mutex_;
};

// Holds a shared mutex to the end of the scope, for reading.
class TNR_SCOPED_CAPABILITY SharedLock {
public:
    explicit SharedLock(SharedMutex& mutex) TNR_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
    ~SharedLock() TNR_RELEASE() { mutex_.unlock_shared(); }
    SharedLock(const SharedLock&) = delete;
    SharedLock& operator=(const SharedLock&) = delete;

private:
    SharedMutex& mutex_;
};

// A std::condition_variable. It takes the mutex rather than the lock, so that clang checks that the mutex is held;
// waiting lets go of it and takes it again before it returns.
class Condition {
public:
    void notify_one() noexcept { condition_.notify_one(); }
    void notify_all() noexcept { condition_.notify_all(); }

    void wait(Mutex& mutex) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        condition_.wait(held.lock);
    }
    // Until ready() is true, which is asked with the mutex held.
    template <class Ready>
    void wait(Mutex& mutex, Ready ready) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        condition_.wait(held.lock, std::move(ready));
    }
    template <class Rep, class Period>
    std::cv_status wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> timeout) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        return condition_.wait_for(held.lock, timeout);
    }
    // What ready() says at the end: false means that it took longer than `timeout`.
    template <class Rep, class Period, class Ready>
    bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> timeout, Ready ready) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        return condition_.wait_for(held.lock, timeout, std::move(ready));
    }
    template <class Clock, class Duration>
    std::cv_status wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        return condition_.wait_until(held.lock, deadline);
    }
    template <class Clock, class Duration, class Ready>
    bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline, Ready ready) TNR_REQUIRES(mutex) {
        Adopted held(mutex.mutex_);
        return condition_.wait_until(held.lock, deadline, std::move(ready));
    }

private:
    // Lends the caller's lock to the standard library, which wants a lock of its own, and never unlocks it.
    struct Adopted {
        explicit Adopted(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
        ~Adopted() { (void)lock.release(); }
        std::unique_lock<std::mutex> lock;
    };
    std::condition_variable condition_;
};

}  // namespace tnr
