#include "rendezvous/core/failures/failure_list.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

void FailureList::Add(WorkerFailure failure, Instant arrival) {
  const Evidence evidence = Weigh(failure);
  const NodeId node = failure.node_id;
  const auto known = std::find_if(
      reported_.begin(), reported_.end(),
      [&](const ReportedFailure& other) { return other.failure.rank == failure.rank; });
  if (known != reported_.end()) {
    known->failure = std::move(failure);
    evidence_[static_cast<size_t>(known - reported_.begin())] = evidence;
    return FindStrongestOf(node);
  }
  reported_.push_back({std::move(failure), arrival});
  evidence_.push_back(evidence);
  strongest_.push_back(false);
  FindStrongestOf(node);
  if (reported_.size() <= kFailuresMax) return;
  const auto weakest = static_cast<ptrdiff_t>(Weakest());
  const NodeId loser = reported_[static_cast<size_t>(weakest)].failure.node_id;
  reported_.erase(reported_.begin() + weakest);
  evidence_.erase(evidence_.begin() + weakest);
  strongest_.erase(strongest_.begin() + weakest);
  FindStrongestOf(loser);
}

void FailureList::FindStrongestOf(const NodeId& node) {
  const auto strength = [this](size_t at) {
    return std::tuple(evidence_[at], reported_[at].failure.after_first_ms, at);
  };
  std::optional<size_t> strongest;
  for (size_t index = 0; index < reported_.size(); ++index) {
    if (reported_[index].failure.node_id != node) continue;
    strongest_[index] = false;
    if (!strongest || strength(index) < strength(*strongest)) strongest = index;
  }
  if (strongest) strongest_[*strongest] = true;
}

size_t FailureList::Weakest() const {
  size_t weakest = 0;
  std::tuple<bool, Evidence, size_t> least;
  for (size_t index = 0; index < reported_.size(); ++index) {
    const std::tuple weakness(!strongest_[index], evidence_[index], index);
    if (index > 0 && weakness < least) continue;
    weakest = index;
    least = weakness;
  }
  return weakest;
}

std::string FailureList::BrokenInvariant() const {
  if (reported_.size() > kFailuresMax) return "more failures than are kept";
  const bool weighed =
      evidence_.size() == reported_.size() && strongest_.size() == evidence_.size();
  if (!weighed) return "failures without their weight";
  std::set<uint32_t> ranks;
  Instant last = Instant::FromNanoseconds(0);
  for (const ReportedFailure& each : reported_) {
    if (!ranks.insert(each.failure.rank).second) return "two failures of one rank";
    if (each.arrival < last) return "failures out of order";
    last = each.arrival;
  }
  return "";
}

namespace {

// Upper bounds for the numbers, tags and lengths of a verdict, a failure and a fact;
// tests/unit/rendezvous/wire/fan_out_test.cc compares them with the wire.
constexpr size_t kVerdictFrameBytes = 128;
constexpr size_t kFailureFrameBytes = 192;
constexpr size_t kFactFrameBytes = 8;
constexpr absl::string_view kEllipsis = "\xE2\x80\xA6";  // U+2026

size_t BytesOf(const WorkerFailure& failure) {
  size_t bytes = kFailureFrameBytes + failure.node_id.value().size() + failure.hostname.size() +
                 failure.start_error.size() + failure.message.size() + failure.traceback.size() +
                 failure.error_file.size() + failure.stderr_tail.size();
  for (const std::string& fact : failure.facts) bytes += kFactFrameBytes + fact.size();
  return bytes;
}

// Makes the text at least `excess` bytes shorter, or empty.
void CutEnd(std::string& text, size_t excess) {
  if (text.size() < excess + kEllipsis.size()) return text.clear();
  const size_t end = CutLength(text, text.size() - excess - kEllipsis.size());
  text = absl::StrCat(absl::string_view(text).substr(0, end), kEllipsis);
}

// Cuts at the beginning, for a text with the useful part at its end.
void CutBegin(std::string& text, size_t excess) {
  if (text.size() < excess + kEllipsis.size()) return text.clear();
  size_t begin = excess + kEllipsis.size();
  while (begin < text.size() && ContinuesCharacter(text[begin])) ++begin;
  text = absl::StrCat(kEllipsis, absl::string_view(text).substr(begin));
}

// A verdict that is being cut, and its current size on the wire.
class Cutter {
 public:
  Cutter(Verdict verdict, size_t bytes_max)
      : verdict_(std::move(verdict)), bytes_(BytesOnWire(verdict_)), bytes_max_(bytes_max) {}

  bool fits() const { return bytes_ <= bytes_max_; }

  // Drops stack and stderr of the failures from `first` on, the last failure first.
  void ShortenFrom(size_t first) {
    for (size_t i = verdict_.failures.size(); i-- > first && !fits();) {
      Change(verdict_.failures[i], [](WorkerFailure& failure) {
        if (failure.traceback.empty() && failure.stderr_tail.empty()) return;
        failure.traceback.clear();
        failure.stderr_tail.clear();
        failure.texts_left_out = true;
      });
    }
  }

  // Drops the failures from `first` on, the last failure first.
  void DropFrom(size_t first) {
    while (verdict_.failures.size() > first && !fits()) {
      bytes_ -= BytesOf(verdict_.failures.back());
      verdict_.failures.pop_back();
      ++verdict_.failures_left_out;
      if (verdict_.failures.size() >= verdict_.first_causes) continue;
      --verdict_.first_causes;
      ++verdict_.causes_left_out;
    }
  }

  // Cuts the texts of the first failure, each as far as needed.
  void CutFirst() {
    const auto cut = [this](auto shorten) {
      if (fits() || verdict_.failures.empty()) return;
      Change(verdict_.failures.front(), [&](WorkerFailure& failure) {
        shorten(failure, bytes_ - bytes_max_);
        failure.texts_left_out = true;
      });
    };
    cut([](WorkerFailure& failure, size_t excess) { CutBegin(failure.stderr_tail, excess); });
    cut([](WorkerFailure& failure, size_t excess) { CutBegin(failure.traceback, excess); });
    cut([](WorkerFailure& failure, size_t /*excess*/) { failure.facts.clear(); });
    cut([](WorkerFailure& failure, size_t excess) { CutEnd(failure.start_error, excess); });
    cut([](WorkerFailure& failure, size_t excess) { CutEnd(failure.message, excess); });
    cut([](WorkerFailure& failure, size_t excess) { CutEnd(failure.error_file, excess); });
  }

  Verdict Take() && { return std::move(verdict_); }

 private:
  template <typename Verb>
  void Change(WorkerFailure& failure, Verb verb) {
    const size_t before = BytesOf(failure);
    verb(failure);
    bytes_ = bytes_ - before + BytesOf(failure);
  }

  Verdict verdict_;
  size_t bytes_;
  const size_t bytes_max_;
};

}  // namespace

size_t VerdictBytesFor(size_t nodes) {
  DDPRUN_CHECK(nodes > 0, "a verdict to nobody");
  return std::max(kVerdictsBytesMax / nodes, kVerdictBytesMin);
}

size_t BytesOnWire(const Verdict& verdict) {
  size_t bytes =
      kVerdictFrameBytes + verdict.reason.size() + verdict.rule.size() + verdict.whole_on.size();
  for (const WorkerFailure& failure : verdict.failures) bytes += BytesOf(failure);
  return bytes;
}

Verdict CutVerdict(Verdict verdict, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kVerdictBytesMin, absl::StrCat(bytes_max));
  DDPRUN_CHECK(verdict.failures_left_out == 0, "a verdict is cut once");
  const size_t causes = std::max<size_t>(verdict.first_causes, 1);
  Cutter cutter(std::move(verdict), bytes_max);
  cutter.ShortenFrom(causes);
  cutter.DropFrom(causes);
  cutter.ShortenFrom(1);
  cutter.DropFrom(1);
  cutter.CutFirst();
  return std::move(cutter).Take();
}

}  // namespace ddprun::rendezvous
