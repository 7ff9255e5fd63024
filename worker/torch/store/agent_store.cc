#include "worker/torch/store/agent_store.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ddprun::worker {
namespace {

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) C10_THROW_ERROR(DistStoreError, status.ToString());
}

template <typename Value>
Value ValueOrThrow(absl::StatusOr<Value> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

// A zero of c10d's means no limit.
absl::Duration ToDuration(std::chrono::milliseconds timeout) {
  if (timeout == c10d::Store::kNoTimeout) return absl::InfiniteDuration();
  return absl::FromChrono(timeout);
}

std::string ToText(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<uint8_t> ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

c10::intrusive_ptr<c10d::Store> AgentStore::clone() {
  auto copy = c10::make_intrusive<AgentStore>(store_);
  copy->setTimeout(timeout_);
  return copy;
}

void AgentStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  ThrowIfError(store_->Set(key, ToText(value)));
}

std::vector<uint8_t> AgentStore::get(const std::string& key) {
  return ToBytes(ValueOrThrow(store_->Get(key, ToDuration(timeout_))));
}

std::vector<uint8_t> AgentStore::compareSet(const std::string& key,
                                            const std::vector<uint8_t>& expected,
                                            const std::vector<uint8_t>& desired) {
  return ToBytes(ValueOrThrow(store_->CompareSet(key, ToText(expected), ToText(desired))));
}

int64_t AgentStore::add(const std::string& key, int64_t amount) {
  return ValueOrThrow(store_->Add(key, amount));
}

bool AgentStore::deleteKey(const std::string& key) { return ValueOrThrow(store_->Delete(key)); }

bool AgentStore::check(const std::vector<std::string>& keys) {
  return ValueOrThrow(store_->Check(keys));
}

int64_t AgentStore::getNumKeys() { return ValueOrThrow(store_->Count()); }

void AgentStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void AgentStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  ThrowIfError(store_->Wait(keys, ToDuration(timeout)));
}

std::vector<std::string> AgentStore::Gather(const std::string& key, const std::string& value,
                                            const std::vector<std::string>& keys,
                                            absl::Duration timeout) {
  return ValueOrThrow(store_->Gather(key, value, keys, timeout));
}

}  // namespace ddprun::worker
