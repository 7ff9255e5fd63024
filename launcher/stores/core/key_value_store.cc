#include "launcher/stores/core/key_value_store.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// Longer than any job, and far from the end of the clock.
constexpr absl::Duration kTimeoutMax = absl::Hours(10 * 365 * 24);

size_t BytesOf(const std::vector<std::string>& keys) {
  size_t bytes = 0;
  for (const std::string& key : keys) bytes += key.size();
  return bytes;
}

}  // namespace

KeyValueStore::KeyValueStore(StoreBounds bounds) : bounds_(bounds) {}

std::vector<StoreAnswer> KeyValueStore::Step(Instant now, StoreEvent event) {
  DDPRUN_CHECK(now >= now_, "the store's time went back");
  now_ = now;
  std::visit([this](auto&& what) { On(std::forward<decltype(what)>(what)); }, std::move(event));
  ExpireWaiters();
  return std::exchange(answers_, {});
}

Instant KeyValueStore::NextDeadline() const {
  return deadlines_.empty() ? Instant::Infinite() : deadlines_.begin()->first;
}

void KeyValueStore::On(StoreCall event) {
  DDPRUN_CHECK(!waiters_.contains(event.call), "two calls with one id");
  if (closed_.has_value()) return Answer(event.call, absl::AbortedError(*closed_));
  std::visit([&](auto&& what) { Run(event.call, std::forward<decltype(what)>(what)); },
             std::move(event.operation));
}

void KeyValueStore::On(const StoreCallCancelled& event) {
  if (waiters_.contains(event.call)) Remove(event.call);
}

// Every step expires what is due.
void KeyValueStore::On(const StoreTimerDue& /*event*/) {}

void KeyValueStore::On(const StoreClosed& event) {
  if (closed_.has_value()) return;
  closed_ = event.why;
  for (const auto& [call, waiter] : waiters_) Answer(call, absl::AbortedError(event.why));
  waiters_.clear();
  watchers_.clear();
  deadlines_.clear();
  values_.clear();
  bytes_ = 0;
}

void KeyValueStore::Run(StoreCallId call, SetKey operation) {
  if (absl::Status key = CheckKey("set", operation.key); !key.ok()) {
    return Answer(call, std::move(key));
  }
  if (absl::Status put = Put("set", operation.key, std::move(operation.value)); !put.ok()) {
    return Answer(call, std::move(put));
  }
  Answer(call, StoreResult{});
  Wake(operation.key);
}

void KeyValueStore::Run(StoreCallId call, GetKey operation) {
  if (absl::Status key = CheckKey("get", operation.key); !key.ok()) {
    return Answer(call, std::move(key));
  }
  Park(call, MakeWaiter(Waiter::Wants::kValue, {std::move(operation.key)}, operation.timeout));
}

void KeyValueStore::Run(StoreCallId call, WaitForKeys operation) {
  if (absl::Status keys = CheckKeyList("wait", operation.keys); !keys.ok()) {
    return Answer(call, std::move(keys));
  }
  Park(call, MakeWaiter(Waiter::Wants::kNothing, std::move(operation.keys), operation.timeout));
}

void KeyValueStore::Run(StoreCallId call, const AddToKey& operation) {
  if (absl::Status key = CheckKey("add", operation.key); !key.ok()) {
    return Answer(call, std::move(key));
  }
  absl::StatusOr<int64_t> sum = Sum(operation);
  if (!sum.ok()) return Answer(call, sum.status());
  if (absl::Status put = Put("add", operation.key, absl::StrCat(*sum)); !put.ok()) {
    return Answer(call, std::move(put));
  }
  Answer(call, StoreResult{.value = nullptr, .number = *sum});
  Wake(operation.key);
}

void KeyValueStore::Run(StoreCallId call, const CheckKeys& operation) {
  if (absl::Status keys = CheckKeyList("check", operation.keys); !keys.ok()) {
    return Answer(call, std::move(keys));
  }
  const bool all = !FirstAbsent(operation.keys, 0).has_value();
  Answer(call, StoreResult{.value = nullptr, .number = 0, .found = all});
}

void KeyValueStore::Run(StoreCallId call, const DeleteKey& operation) {
  if (absl::Status key = CheckKey("delete", operation.key); !key.ok()) {
    return Answer(call, std::move(key));
  }
  const auto found = values_.find(operation.key);
  if (found == values_.end()) return Answer(call, StoreResult{});
  bytes_ -= found->first.size() + found->second->size();
  values_.erase(found);
  Answer(call, StoreResult{.value = nullptr, .number = 0, .found = true});
}

void KeyValueStore::Run(StoreCallId call, CompareAndSetKey operation) {
  if (absl::Status key = CheckKey("compare_set", operation.key); !key.ok()) {
    return Answer(call, std::move(key));
  }
  const auto found = values_.find(operation.key);
  const bool absent = found == values_.end();
  if (absent ? !operation.expected.empty() : *found->second != operation.expected) {
    Value there =
        absent ? std::make_shared<const std::string>(std::move(operation.expected)) : found->second;
    return Answer(call, StoreResult{.value = std::move(there)});
  }
  if (absl::Status put = Put("compare_set", operation.key, std::move(operation.desired));
      !put.ok()) {
    return Answer(call, std::move(put));
  }
  Answer(call, StoreResult{.value = values_.at(operation.key)});
  Wake(operation.key);
}

void KeyValueStore::Run(StoreCallId call, const CountKeys& /*operation*/) {
  Answer(call, StoreResult{.value = nullptr, .number = static_cast<int64_t>(values_.size())});
}

void KeyValueStore::Run(StoreCallId call, GatherKeys operation) {
  const bool sets = !operation.key.empty();
  absl::Status good = CheckKeyList("gather", operation.keys);
  if (good.ok() && sets) good = CheckKey("gather", operation.key);
  Waiter waiter = MakeWaiter(Waiter::Wants::kValues, std::move(operation.keys), operation.timeout);
  // Before anything is set: a call without room changes nothing.
  if (good.ok()) good = RoomFor(waiter, sets ? operation.key.size() + operation.value.size() : 0);
  if (good.ok() && sets) good = Put("gather", operation.key, std::move(operation.value));
  if (!good.ok()) return Answer(call, std::move(good));
  Park(call, std::move(waiter));
  if (sets) Wake(operation.key);
}

absl::Status KeyValueStore::CheckKey(const char* operation, const std::string& key) const {
  if (key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("store ", operation, ": the key is empty; name one"));
  }
  if (key.size() > bounds_.key_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("store ", operation, ": key ", Quoted(key),
                                                     " is longer than ", bounds_.key_bytes,
                                                     " bytes; use a shorter one"));
  }
  return absl::OkStatus();
}

absl::Status KeyValueStore::CheckKeyList(const char* operation,
                                         const std::vector<std::string>& keys) const {
  if (keys.size() > bounds_.keys_per_call) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store ", operation, ": ", keys.size(), " keys in one call, at most ",
                     bounds_.keys_per_call, " are allowed; use several calls"));
  }
  for (const std::string& key : keys) DDPRUN_RETURN_IF_ERROR(CheckKey(operation, key));
  return absl::OkStatus();
}

absl::Status KeyValueStore::Put(const char* operation, const std::string& key, std::string value) {
  if (value.size() > bounds_.value_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store ", operation, " ", Quoted(key), ": the value has ", value.size(),
                     " bytes, at most ", bounds_.value_bytes, " are allowed; split it"));
  }
  const auto found = values_.find(key);
  const bool absent = found == values_.end();
  if (absent && values_.size() >= bounds_.keys) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store ", operation, " ", Quoted(key), ": the store is full with ",
                     bounds_.keys, " keys; delete those that are no longer needed"));
  }
  const size_t before = absent ? 0 : key.size() + found->second->size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > bounds_.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "store ", operation, " ", Quoted(key), ": the store would hold ", after, " bytes, at most ",
        bounds_.bytes, " are allowed; delete keys that are no longer needed"));
  }
  bytes_ = after;
  values_.insert_or_assign(key, std::make_shared<const std::string>(std::move(value)));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> KeyValueStore::Sum(const AddToKey& operation) const {
  const auto found = values_.find(operation.key);
  if (found == values_.end()) return operation.amount;
  int64_t number = 0;
  if (!absl::SimpleAtoi(*found->second, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("store add ", Quoted(operation.key), ": its value ", Quoted(*found->second),
                     " is no decimal number of 64 bits; add only to keys that were made by add"));
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, operation.amount, &sum)) {
    return absl::InvalidArgumentError(absl::StrCat("store add ", Quoted(operation.key), ": ",
                                                   number, " + ", operation.amount,
                                                   " is beyond 64 bits; add less"));
  }
  return sum;
}

// Looks at every key once, beginning at index `from` and going round.
std::optional<size_t> KeyValueStore::FirstAbsent(const std::vector<std::string>& keys,
                                                 size_t from) const {
  for (size_t step = 0; step < keys.size(); ++step) {
    const size_t index = (from + step) % keys.size();
    if (!values_.contains(keys[index])) return index;
  }
  return std::nullopt;
}

Instant KeyValueStore::DeadlineOf(absl::Duration timeout) const {
  return now_ + std::clamp(timeout, absl::ZeroDuration(), kTimeoutMax);
}

KeyValueStore::Waiter KeyValueStore::MakeWaiter(Waiter::Wants wants, std::vector<std::string> keys,
                                                absl::Duration timeout) {
  const size_t bytes = BytesOf(keys);
  return {.wants = wants,
          .keys = std::move(keys),
          .bytes = bytes,
          .watched = 0,
          .timeout = timeout,
          .deadline = DeadlineOf(timeout)};
}

// Params: beside — more bytes to be held beside the waiter.
absl::Status KeyValueStore::RoomFor(const Waiter& waiter, size_t beside) const {
  if (waiters_.size() < bounds_.waiters && bytes_ + waiter.bytes + beside <= bounds_.bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "store: ", waiters_.size(), " calls wait and ", bytes_, " bytes are held, at most ",
      bounds_.waiters, " and ", bounds_.bytes, " are allowed; try again when keys were set"));
}

void KeyValueStore::Park(StoreCallId call, Waiter waiter) {
  const std::optional<size_t> absent = FirstAbsent(waiter.keys, 0);
  if (!absent.has_value()) return AnswerMet(call, waiter);
  if (absl::Status room = RoomFor(waiter, 0); !room.ok()) return Answer(call, std::move(room));
  bytes_ += waiter.bytes;
  deadlines_.emplace(waiter.deadline, call);
  Waiter& parked = waiters_.emplace(call, std::move(waiter)).first->second;
  Watch(call, &parked, *absent);
}

void KeyValueStore::Wake(const std::string& key) {
  const auto found = watchers_.find(key);
  if (found == watchers_.end()) return;
  const std::set<StoreCallId> woken = std::move(found->second);
  watchers_.erase(found);
  for (const StoreCallId call : woken) {
    Waiter& waiter = waiters_.at(call);
    const std::optional<size_t> absent = FirstAbsent(waiter.keys, waiter.watched);
    if (absent.has_value()) {
      Watch(call, &waiter, *absent);
    } else {
      AnswerMet(call, Remove(call));
    }
  }
}

void KeyValueStore::Watch(StoreCallId call, Waiter* waiter, size_t index) {
  waiter->watched = index;
  watchers_[waiter->keys[index]].insert(call);
}

KeyValueStore::Waiter KeyValueStore::Remove(StoreCallId call) {
  auto node = waiters_.extract(call);
  Waiter waiter = std::move(node.mapped());
  bytes_ -= waiter.bytes;
  deadlines_.erase({waiter.deadline, call});
  const auto watchers = watchers_.find(waiter.keys[waiter.watched]);
  if (watchers != watchers_.end()) {
    watchers->second.erase(call);
    if (watchers->second.empty()) watchers_.erase(watchers);
  }
  return waiter;
}

void KeyValueStore::ExpireWaiters() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const StoreCallId call = deadlines_.begin()->second;
    const Waiter waiter = Remove(call);
    Answer(call, Expired(waiter));
  }
}

void KeyValueStore::Answer(StoreCallId call, absl::StatusOr<StoreResult> result) {
  answers_.push_back({call, std::move(result)});
}

void KeyValueStore::AnswerMet(StoreCallId call, const Waiter& waiter) {
  if (waiter.wants == Waiter::Wants::kValues) return Answer(call, ValuesOf(waiter.keys));
  StoreResult result;
  if (waiter.wants == Waiter::Wants::kValue) result.value = values_.at(waiter.keys.front());
  Answer(call, std::move(result));
}

absl::StatusOr<StoreResult> KeyValueStore::ValuesOf(const std::vector<std::string>& keys) const {
  StoreResult result;
  size_t bytes = 0;
  for (const std::string& key : keys) {
    bytes += result.values.emplace_back(values_.at(key))->size();
    if (bytes <= bounds_.value_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat("store gather: the values of ", keys.size(),
                                                     " keys have more than ", bounds_.value_bytes,
                                                     " bytes together; get them one by one"));
  }
  return result;
}

absl::Status KeyValueStore::Expired(const Waiter& waiter) const {
  size_t absent = 0;
  for (const std::string& key : waiter.keys) absent += values_.contains(key) ? 0 : 1;
  const bool gathers = waiter.wants == Waiter::Wants::kValues;
  const std::string what = waiter.wants == Waiter::Wants::kValue
                               ? absl::StrCat("store get: key ", Quoted(waiter.keys.front()))
                               : absl::StrCat("store ", gathers ? "gather: " : "wait: ", absent,
                                              " of ", waiter.keys.size(), " keys, one is ",
                                              Quoted(waiter.keys[waiter.watched]), ",");
  const std::string within = waiter.timeout > absl::ZeroDuration()
                                 ? absl::StrCat(" within ", absl::FormatDuration(waiter.timeout))
                                 : "";
  return absl::DeadlineExceededError(absl::StrCat(what, " not there", within,
                                                  " (keys in the store: ", values_.size(),
                                                  "); look for the rank that sets it"));
}

void KeyValueStore::CheckInvariants() const {
  size_t bytes = 0;
  for (const auto& [key, value] : values_) bytes += key.size() + value->size();
  for (const auto& [call, waiter] : waiters_) {
    bytes += waiter.bytes;
    DDPRUN_CHECK(waiter.bytes == BytesOf(waiter.keys), "a waiter's bytes are wrong");
    const std::string& watched = waiter.keys.at(waiter.watched);
    DDPRUN_CHECK(!values_.contains(watched), "a waiter watches a key that is there");
    const auto watchers = watchers_.find(watched);
    DDPRUN_CHECK(watchers != watchers_.end() && watchers->second.contains(call),
                 "an unseen waiter");
    DDPRUN_CHECK(deadlines_.contains({waiter.deadline, call}), "a waiter without a deadline");
    DDPRUN_CHECK(waiter.deadline > now_, "a waiter is over its time");
  }
  size_t watching = 0;
  for (const auto& [key, calls] : watchers_) watching += calls.size();
  DDPRUN_CHECK(watching == waiters_.size(), "a call watches more than one key");
  DDPRUN_CHECK(deadlines_.size() == waiters_.size(), "a deadline without a waiter");
  DDPRUN_CHECK(bytes == bytes_ && bytes_ <= bounds_.bytes, "the bytes held are wrong");
  DDPRUN_CHECK(values_.size() <= bounds_.keys && waiters_.size() <= bounds_.waiters, "a bound");
}

}  // namespace ddprun::launcher
