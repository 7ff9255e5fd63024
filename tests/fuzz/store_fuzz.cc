#include "tests/fuzz/store_fuzz.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/stores/core/key_value_store.h"
#include "launcher/stores/store_wire.h"

namespace ddprun::launcher {
namespace {

constexpr uint8_t kPause = 0xf0;
constexpr uint8_t kCancel = 0xe0;
constexpr uint8_t kClose = 0xd1;
constexpr uint8_t kTimer = 0xd0;

class Run {
 public:
  StoreFuzzResult Of(absl::string_view bytes) {
    while (!bytes.empty()) bytes.remove_prefix(One(bytes));
    Take(StoreClosed{"the end"});
    DDPRUN_CHECK(owed_.empty(), "a call has no answer");
    DDPRUN_CHECK(store_.bytes() == 0 && store_.NextDeadline().is_infinite(), "not empty");
    return result_;
  }

 private:
  // Returns how many bytes were used, at least 1.
  size_t One(absl::string_view bytes) {
    const auto step = static_cast<uint8_t>(bytes[0]);
    if (step >= kPause) {
      now_ = now_ + absl::Seconds(step - kPause);
    } else if (step >= kCancel) {
      Cancel(last_call_ - std::min<uint64_t>(last_call_, step - kCancel));
    } else if (step >= kClose) {
      Take(StoreClosed{"closed"});
    } else if (step == kTimer) {
      Take(StoreTimerDue{});
    } else {
      const size_t size = std::min<size_t>(step, bytes.size() - 1);
      Call(bytes.substr(1, size));
      return 1 + size;
    }
    return 1;
  }
  void Call(absl::string_view bytes) {
    agent::v1::StoreRequest request;
    const bool parsed = request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    absl::StatusOr<StoreOperation> operation = FromProto(request);
    if (!parsed || !operation.ok()) {
      ++result_.malformed;
      return;
    }
    owed_.insert(StoreCallId(++last_call_));
    Take(StoreCall{StoreCallId(last_call_), *std::move(operation)});
  }
  void Cancel(uint64_t call) {
    result_.cancelled += owed_.erase(StoreCallId(call));
    Take(StoreCallCancelled{StoreCallId(call)});
  }
  void Take(StoreEvent event) {
    for (const StoreAnswer& answer : store_.Step(now_, std::move(event))) Check(answer);
    store_.CheckInvariants();
    DDPRUN_CHECK(owed_.size() == store_.waiter_count(), "a call is neither answered nor waits");
  }
  void Check(const StoreAnswer& answer) {
    DDPRUN_CHECK(owed_.erase(answer.call) == 1, "an answer that nobody is owed");
    ++result_.answered;
    const absl::Status& status = answer.result.status();
    const bool refused = absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
    result_.refused += refused ? 1 : 0;
    DDPRUN_CHECK(
        status.ok() || refused || absl::IsAborted(status) || absl::IsDeadlineExceeded(status),
        status.ToString());
    if (status.ok()) ToProto(*answer.result);
  }

  KeyValueStore store_{StoreBounds{.keys = 8,
                                   .key_bytes = 16,
                                   .value_bytes = 32,
                                   .bytes = 200,
                                   .keys_per_call = 6,
                                   .waiters = 6}};
  Instant now_;
  uint64_t last_call_ = 0;
  std::set<StoreCallId> owed_;
  StoreFuzzResult result_;
};

}  // namespace

StoreFuzzResult FuzzStore(absl::string_view bytes) {
  google::protobuf::SetLogHandler(nullptr);  // tells of each string that is no UTF-8
  return Run().Of(bytes);
}

}  // namespace ddprun::launcher
