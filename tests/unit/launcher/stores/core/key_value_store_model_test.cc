// The store against a dumb model: the same random calls must get the same answers in the same
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/rng.h"
#include "launcher/stores/core/key_value_store.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeeds = 2000;
constexpr int kStepsPerSeed = 120;

// One answer without the text of an error, which the model does not know.
std::string Show(StoreCallId call, absl::StatusCode code, const StoreResult& result) {
  if (code != absl::StatusCode::kOk) {
    return absl::StrCat(call.value(), " ", absl::StatusCodeToString(code));
  }
  return absl::StrCat(call.value(), " value=", result.value ? *result.value : "-",
                      " number=", result.number, " found=", result.found,
                      " values=", absl::StrJoin(result.values, ",", [](auto* out, const auto& one) {
                        absl::StrAppend(out, *one);
                      }));
}

// What the store promises, as slowly and plainly as it can be said: everything is looked at on
// every step.
class Model {
 public:
  explicit Model(StoreBounds bounds) : bounds_(bounds) {}

  struct Answer {
    StoreCallId call;
    absl::StatusCode code = absl::StatusCode::kOk;
    StoreResult result = {};
  };

  std::vector<Answer> Step(Instant now, const StoreEvent& event) {
    answers_.clear();
    now_ = now;
    std::visit([this](const auto& what) { On(what); }, event);
    for (size_t i = 0; i < waiting_.size();) {  // met: in order of arrival
      if (!Met(waiting_[i])) {
        ++i;
        continue;
      }
      Meet(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    Expire();
    return answers_;
  }

 private:
  struct Waiting {
    StoreCallId call;
    size_t wanted;  // how many values
    std::vector<std::string> keys;
    Instant deadline;
    bool gathers = false;
  };

  void On(const StoreCall& event) {
    call_ = event.call;
    if (closed_) return Say(absl::StatusCode::kAborted);
    std::visit([this](const auto& what) { Run(what); }, event.operation);
  }
  void On(const StoreCallCancelled& event) {
    std::erase_if(waiting_, [&](const Waiting& w) { return w.call == event.call; });
  }
  void On(const StoreTimerDue& /*event*/) {}
  void On(const StoreClosed& /*event*/) {
    closed_ = true;
    for (const Waiting& w : waiting_) answers_.push_back({w.call, absl::StatusCode::kAborted});
    waiting_.clear();
    values_.clear();
  }

  void Run(const SetKey& o) {
    if (Fits(o.key, o.value)) Write(o.key, o.value, {});
  }
  void Run(const GetKey& o) { Wait(1, {o.key}, o.timeout); }
  void Run(const WaitForKeys& o) { Wait(0, o.keys, o.timeout); }
  void Run(const GatherKeys& o) {
    if (!Good(o.keys) || (!o.key.empty() && !Good({o.key}))) return;
    size_t bytes = Bytes() + (o.key.empty() ? 0 : o.key.size() + o.value.size());
    for (const std::string& key : o.keys) bytes += key.size();
    if (waiting_.size() >= bounds_.waiters || bytes > bounds_.bytes) {
      return Say(absl::StatusCode::kResourceExhausted);
    }
    if (!o.key.empty() && !Fits(o.key, o.value)) return;
    if (!o.key.empty()) values_[o.key] = o.value;
    Wait(o.keys.size(), o.keys, o.timeout, /*gathers=*/true);
  }
  void Run(const AddToKey& o) {
    int64_t number = 0;
    const bool is_number = !values_.contains(o.key) || absl::SimpleAtoi(values_[o.key], &number);
    if (!Good({o.key})) return;
    if (!is_number) return Say(absl::StatusCode::kInvalidArgument);
    const std::string sum = absl::StrCat(number + o.amount);
    if (Fits(o.key, sum)) Write(o.key, sum, {.value = nullptr, .number = number + o.amount});
  }
  void Run(const CheckKeys& o) {
    if (Good(o.keys)) Say({.value = nullptr, .number = 0, .found = AllThere(o.keys)});
  }
  void Run(const DeleteKey& o) {
    if (Good({o.key})) Say({.value = nullptr, .number = 0, .found = values_.erase(o.key) > 0});
  }
  void Run(const CompareAndSetKey& o) {
    if (!Good({o.key})) return;
    const bool absent = !values_.contains(o.key);
    const std::string there = absent ? "" : values_[o.key];
    if (there == o.expected) {
      if (Fits(o.key, o.desired)) Write(o.key, o.desired, {.value = Share(o.desired)});
    } else {
      Say({.value = Share(absent ? o.expected : there)});
    }
  }
  void Run(const CountKeys& /*operation*/) {
    Say({.value = nullptr, .number = static_cast<int64_t>(values_.size())});
  }

  static std::shared_ptr<const std::string> Share(const std::string& text) {
    return std::make_shared<const std::string>(text);
  }
  bool AllThere(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return values_.contains(key); });
  }
  bool Met(const Waiting& w) const { return AllThere(w.keys); }
  void Meet(const Waiting& w) {
    StoreResult result;
    size_t bytes = 0;
    for (size_t i = 0; i < w.wanted; ++i) {
      result.values.push_back(Share(values_[w.keys[i]]));
      bytes += result.values.back()->size();
    }
    if (w.gathers && bytes > bounds_.value_bytes) {
      return answers_.push_back({w.call, absl::StatusCode::kResourceExhausted});
    }
    if (!w.gathers && w.wanted > 0) {
      result.value = result.values[0];
      result.values.clear();
    }
    answers_.push_back({w.call, absl::StatusCode::kOk, result});
  }
  size_t Bytes() const {
    size_t bytes = 0;
    for (const auto& [key, value] : values_) bytes += key.size() + value.size();
    for (const Waiting& w : waiting_) {
      for (const std::string& key : w.keys) bytes += key.size();
    }
    return bytes;
  }
  bool Good(const std::vector<std::string>& keys) {
    if (keys.size() > bounds_.keys_per_call) return Refuse(absl::StatusCode::kResourceExhausted);
    for (const std::string& key : keys) {
      if (key.empty()) return Refuse(absl::StatusCode::kInvalidArgument);
      if (key.size() > bounds_.key_bytes) return Refuse(absl::StatusCode::kResourceExhausted);
    }
    return true;
  }
  bool Fits(const std::string& key, const std::string& value) {
    if (!Good({key})) return false;
    const size_t old = values_.contains(key) ? key.size() + values_[key].size() : 0;
    const bool fits = value.size() <= bounds_.value_bytes &&
                      (old > 0 || values_.size() < bounds_.keys) &&
                      Bytes() - old + key.size() + value.size() <= bounds_.bytes;
    return fits || Refuse(absl::StatusCode::kResourceExhausted);
  }
  void Write(const std::string& key, const std::string& value, StoreResult result) {
    values_[key] = value;
    Say(std::move(result));
  }
  void Wait(size_t wanted, const std::vector<std::string>& keys, absl::Duration timeout,
            bool gathers = false) {
    if (!Good(keys)) return;
    const Waiting w{call_, wanted, keys, now_ + std::max(timeout, absl::ZeroDuration()), gathers};
    if (Met(w)) return Meet(w);
    size_t bytes = Bytes();
    for (const std::string& key : keys) bytes += key.size();
    if (waiting_.size() >= bounds_.waiters || bytes > bounds_.bytes) {
      return Say(absl::StatusCode::kResourceExhausted);
    }
    waiting_.push_back(w);
  }
  void Expire() {
    auto due = waiting_;
    std::erase_if(due, [&](const Waiting& w) { return w.deadline > now_; });
    std::stable_sort(due.begin(), due.end(),
                     [](const Waiting& a, const Waiting& b) { return a.deadline < b.deadline; });
    for (const Waiting& w : due) answers_.push_back({w.call, absl::StatusCode::kDeadlineExceeded});
    std::erase_if(waiting_, [&](const Waiting& w) { return w.deadline <= now_; });
  }
  void Say(StoreResult result) {
    answers_.push_back({call_, absl::StatusCode::kOk, std::move(result)});
  }
  void Say(absl::StatusCode code) { answers_.push_back({call_, code}); }
  bool Refuse(absl::StatusCode code) {
    Say(code);
    return false;
  }

  StoreBounds bounds_;
  Instant now_;
  StoreCallId call_;
  bool closed_ = false;
  std::map<std::string, std::string> values_;
  std::vector<Waiting> waiting_;
  std::vector<Answer> answers_;
};

// Draws events over few keys, so that they meet often.
class Events {
 public:
  explicit Events(uint64_t seed) : rng_(seed) {}

  StoreEvent Next() {
    if (rng_.Chance(10)) return StoreTimerDue{};
    if (rng_.Chance(5) && last_call_ > 0) {
      return StoreCallCancelled{StoreCallId(1 + rng_.Below(last_call_))};
    }
    if (rng_.Below(400) == 0) return StoreClosed{"over"};
    return StoreCall{StoreCallId(++last_call_), Operation()};
  }
  absl::Duration Pause() { return absl::Seconds(rng_.Chance(40) ? rng_.Below(3) : 0); }

 private:
  StoreOperation Operation() {
    switch (rng_.Below(11)) {
      case 0:
      case 1:
        return SetKey{Key(), Text()};
      case 2:
        return GetKey{Key(), Timeout()};
      case 3:
        return WaitForKeys{Keys(), Timeout()};
      case 4:
        return AddToKey{Key(), static_cast<int64_t>(rng_.Below(20)) - 10};
      case 5:
        return CheckKeys{Keys()};
      case 6:
        return DeleteKey{Key()};
      case 7:
        return CompareAndSetKey{Key(), Text(), Text()};
      case 8:
      case 9:
        return GatherKeys{rng_.Chance(30) ? "" : Key(), Text(), Keys(), Timeout()};
      default:
        return CountKeys{};
    }
  }
  std::string Key() {
    static const std::vector<std::string> kKeys = {"a", "bb", "c", "dd", "e", "", "much too long"};
    return kKeys[rng_.Below(rng_.Chance(5) ? kKeys.size() : 5)];
  }
  std::vector<std::string> Keys() {
    std::vector<std::string> keys(rng_.Below(5));
    for (std::string& key : keys) key = Key();
    return keys;
  }
  std::string Text() {
    static const std::vector<std::string> kTexts = {"", "", "1", "22", "x", "too long a value"};
    return kTexts[rng_.Below(kTexts.size())];
  }
  absl::Duration Timeout() { return absl::Seconds(static_cast<int64_t>(rng_.Below(12)) - 2); }

  Rng rng_;
  uint64_t last_call_ = 0;
};

StoreBounds SomeBounds(uint64_t seed) {
  if (seed % 2 == 0) return {};
  return {
      .keys = 4, .key_bytes = 6, .value_bytes = 10, .bytes = 24, .keys_per_call = 3, .waiters = 3};
}

void CompareRun(uint64_t seed, std::map<absl::StatusCode, int>* seen) {
  Events events(seed);
  KeyValueStore store(SomeBounds(seed));
  Model model(SomeBounds(seed));
  Instant now = Instant::FromNanoseconds(1);
  for (int step = 0; step < kStepsPerSeed; ++step) {
    now = now + events.Pause();
    const StoreEvent event = events.Next();
    std::vector<std::string> got;
    for (const StoreAnswer& answer : store.Step(now, event)) {
      const absl::StatusCode code = answer.result.status().code();
      got.push_back(Show(answer.call, code, answer.result.ok() ? *answer.result : StoreResult{}));
    }
    store.CheckInvariants();
    std::vector<std::string> want;
    for (const Model::Answer& answer : model.Step(now, event)) {
      ++(*seen)[answer.code];
      want.push_back(Show(answer.call, answer.code, answer.result));
    }
    ASSERT_EQ(got, want) << "seed " << seed << " step " << step;
  }
}

TEST(KeyValueStoreModelTest, SameAnswersAsTheDumbModel) {
  std::map<absl::StatusCode, int> seen;
  for (uint64_t seed = 1; seed <= kSeeds && !HasFatalFailure(); ++seed) CompareRun(seed, &seen);
  // The runs must reach everything that the store can answer.
  using Code = absl::StatusCode;
  for (const Code code : {Code::kOk, Code::kAborted, Code::kDeadlineExceeded,
                          Code::kInvalidArgument, Code::kResourceExhausted}) {
    EXPECT_GT(seen[code], 500) << absl::StatusCodeToString(code);
  }
}

}  // namespace
}  // namespace ddprun::launcher
