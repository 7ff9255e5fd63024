#ifndef DDPRUN_LAUNCHER_STORES_CORE_KEY_VALUE_STORE_H_
#define DDPRUN_LAUNCHER_STORES_CORE_KEY_VALUE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "base/strong.h"

namespace ddprun::launcher {

// The limits of one store. A call beyond a limit gets RESOURCE_EXHAUSTED with the limit's name, and
// changes nothing.
struct StoreBounds {
  size_t keys = 1U << 20;
  size_t key_bytes = 4096;
  size_t value_bytes = 16U << 20;
  // Keys and values together, and the keys that waiting calls name.
  size_t bytes = 256U << 20;
  size_t keys_per_call = 1U << 17;  // Wait, Check, Gather: one for each rank of the largest jobs
  size_t waiters = 1U << 16;
};

// Identifies a call: unique among waiting calls, growing with arrival.
using StoreCallId = Strong<struct StoreCallIdTag, uint64_t>;

// ------------------------------------------------------------- operations (c10d::Store's)
// Keys are never empty. Timeouts count from the call; zero and less mean: answer at once.

struct SetKey {
  std::string key;
  std::string value;
};

// Answers the value as soon as there is one.
struct GetKey {
  std::string key;
  absl::Duration timeout;
};

// Answers as soon as all keys are there at one moment; at once for no keys.
struct WaitForKeys {
  std::vector<std::string> keys;
  absl::Duration timeout;
};

// Adds to a decimal number, answers the sum; an absent key counts as 0.
struct AddToKey {
  std::string key;
  int64_t amount = 0;
};

// Answers whether all keys are there.
struct CheckKeys {
  std::vector<std::string> keys;
};

// Answers whether the key was there.
struct DeleteKey {
  std::string key;
};

// Sets `desired` when the value is `expected`, or when there is none and `expected` is empty.
// Answers the value that is there afterwards, or `expected` when there is still none.
struct CompareAndSetKey {
  std::string key;
  std::string expected;
  std::string desired;
};

// Answers the number of keys.
struct CountKeys {};

// Sets `key`, unless it is empty; then answers the values of all `keys`, in their order, as soon as
// these are there at one moment. With its own key among them each of many callers learns in one
// call what all of them say. Not one of c10d::Store's.
struct GatherKeys {
  std::string key;
  std::string value;
  std::vector<std::string> keys;
  absl::Duration timeout;
};

using StoreOperation = std::variant<SetKey, GetKey, WaitForKeys, AddToKey, CheckKeys, DeleteKey,
                                    CompareAndSetKey, CountKeys, GatherKeys>;

// ------------------------------------------------------------- events and effects

struct StoreCall {
  StoreCallId call;
  StoreOperation operation;
};

// The caller is gone: its call gets no answer any more. Unknown ids are ignored.
struct StoreCallCancelled {
  StoreCallId call;
};

// NextDeadline() has come.
struct StoreTimerDue {};

// The store's generation is over: those that wait, and all later calls, get ABORTED with `why`.
struct StoreClosed {
  std::string why;
};

using StoreEvent = std::variant<StoreCall, StoreCallCancelled, StoreTimerDue, StoreClosed>;

// The answer of a successful operation. Fields that the operation doesn't use have these defaults.
struct StoreResult {
  std::shared_ptr<const std::string> value;  // shared with the store, for large ones; null = none
  int64_t number = 0;
  bool found = false;
  std::vector<std::shared_ptr<const std::string>> values;  // of a GatherKeys
};

// The only effect: answer this call. Errors:
//   ABORTED             the store was closed
//   DEADLINE_EXCEEDED   Get, Wait, Gather: a key was not there in time; the text names it
//   INVALID_ARGUMENT    an empty key; Add to a value that is no number, or beyond 64 bits
//   RESOURCE_EXHAUSTED  a bound of StoreBounds; what a Gather asks for is longer than one value
//                       may be (its own key is set)
struct StoreAnswer {
  StoreCallId call;
  absl::StatusOr<StoreResult> result;
};

// The key-value store of one generation, through which its workers meet: operations and waiting
// callers, with the semantics of torch 2.11's c10d::Store (TCPStore where that is more exact).
//
// A call that can't be answered yet waits on one key that is absent. When that key is set, the call
// moves on to another one that is absent, or is answered; so a set costs what it wakes, however
// many others wait (the watched literal of Moskewicz et al., "Chaff", DAC 2001).
//
// A key that is set before the timer of a waiting call was taken still counts, even if late: the
// caller's time bounds its waiting, not the setter.
//
// Invariants: each call is answered exactly once, or cancelled; a waiter watches an absent key of
// its own; bytes() is the sum of all keys, values and awaited keys, and within bounds.
// Pure: no clock, I/O, thread or randomness; the same inputs give the same answers in the same
// order (the caller's own first, then those that it woke, oldest first). Threads: one at a time.
class KeyValueStore {
 public:
  explicit KeyValueStore(StoreBounds bounds = {});

  // Takes one event at `now`, which never goes back, and returns what to answer, in this order.
  // Requires: the id of a StoreCall is not among those that wait.
  std::vector<StoreAnswer> Step(Instant now, StoreEvent event);

  // When Step(StoreTimerDue) is wanted next; infinite = no call waits.
  Instant NextDeadline() const;

  size_t key_count() const { return values_.size(); }
  size_t waiter_count() const { return waiters_.size(); }
  size_t bytes() const { return bytes_; }

  // Aborts when an invariant is broken. Bound: linear in what the store holds; for tests.
  void CheckInvariants() const;

 private:
  using Value = std::shared_ptr<const std::string>;

  struct Waiter {
    enum class Wants { kNothing, kValue, kValues };
    Wants wants = Wants::kNothing;  // of a Wait, a Get, a Gather
    std::vector<std::string> keys;
    size_t bytes = 0;    // of the keys
    size_t watched = 0;  // index into keys; that one is absent
    absl::Duration timeout;
    Instant deadline;
  };

  void On(StoreCall event);
  void On(const StoreCallCancelled& event);
  void On(const StoreTimerDue& event);
  void On(const StoreClosed& event);

  void Run(StoreCallId call, SetKey operation);
  void Run(StoreCallId call, GetKey operation);
  void Run(StoreCallId call, WaitForKeys operation);
  void Run(StoreCallId call, const AddToKey& operation);
  void Run(StoreCallId call, const CheckKeys& operation);
  void Run(StoreCallId call, const DeleteKey& operation);
  void Run(StoreCallId call, CompareAndSetKey operation);
  void Run(StoreCallId call, const CountKeys& operation);
  void Run(StoreCallId call, GatherKeys operation);

  absl::Status CheckKey(const char* operation, const std::string& key) const;
  absl::Status CheckKeyList(const char* operation, const std::vector<std::string>& keys) const;
  absl::Status Put(const char* operation, const std::string& key, std::string value);
  absl::StatusOr<int64_t> Sum(const AddToKey& operation) const;
  std::optional<size_t> FirstAbsent(const std::vector<std::string>& keys, size_t from) const;

  Instant DeadlineOf(absl::Duration timeout) const;
  Waiter MakeWaiter(Waiter::Wants wants, std::vector<std::string> keys, absl::Duration timeout);
  absl::Status RoomFor(const Waiter& waiter, size_t beside) const;
  void Park(StoreCallId call, Waiter waiter);
  void Wake(const std::string& key);
  void Watch(StoreCallId call, Waiter* waiter, size_t index);
  Waiter Remove(StoreCallId call);
  void ExpireWaiters();
  void Answer(StoreCallId call, absl::StatusOr<StoreResult> result);
  void AnswerMet(StoreCallId call, const Waiter& waiter);
  absl::StatusOr<StoreResult> ValuesOf(const std::vector<std::string>& keys) const;
  absl::Status Expired(const Waiter& waiter) const;

  StoreBounds bounds_;
  Instant now_;
  std::optional<std::string> closed_;
  std::vector<StoreAnswer> answers_;  // of the event that is being handled

  absl::flat_hash_map<std::string, Value> values_;  // never iterated in a way that shows
  std::map<StoreCallId, Waiter> waiters_;
  absl::flat_hash_map<std::string, std::set<StoreCallId>> watchers_;  // by watched key
  std::set<std::pair<Instant, StoreCallId>> deadlines_;
  size_t bytes_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_CORE_KEY_VALUE_STORE_H_
