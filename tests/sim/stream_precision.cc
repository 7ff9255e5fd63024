#include "tests/sim/stream_precision.h"

#include <algorithm>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/timing.h"
#include "tests/sim/checkers.h"

namespace ddprun::sim {

using rendezvous::CloseStream;
using rendezvous::Effect;
using rendezvous::MessageReceived;
using rendezvous::Note;
using rendezvous::Probe;
using rendezvous::Send;
using rendezvous::StreamClosed;
using rendezvous::Welcome;

namespace {

// From when an agent learns that its stream is gone to its Join: a pause, and a message.
constexpr absl::Duration kBack = absl::Milliseconds(50);
// The pace of probes follows the number of nodes a few ticks later.
constexpr absl::Duration kSettling = absl::Seconds(3);

}  // namespace

std::string RepeatWatch::OnStep(const rendezvous::Event& event, const std::vector<Effect>& effects,
                                bool was_due) {
  std::string broken;
  const auto* received = std::get_if<MessageReceived>(&event);
  if (received != nullptr && received->message.sequence > 0 && open_.contains(received->stream)) {
    uint64_t& processed = processed_[received->message.incarnation];
    if (received->message.sequence > processed) {
      processed = received->message.sequence;
    } else {
      ++repeats_;
      if (!was_due && !effects.empty()) {
        broken = absl::StrCat("event ", received->message.sequence, " of ",
                              received->message.node_id.value(), " has an effect a second time");
      }
    }
  }
  if (const auto* closed = std::get_if<StreamClosed>(&event)) open_.erase(closed->stream);
  for (const Effect& effect : effects) {
    if (const auto* close = std::get_if<CloseStream>(&effect)) open_.erase(close->stream);
    const auto* send = std::get_if<Send>(&effect);
    if (send != nullptr && std::holds_alternative<Welcome>(*send->message)) {
      open_.insert(send->stream);
    }
  }
  return broken;
}

void RepeatWatch::Forget() {
  open_.clear();
  processed_.clear();
}

std::string CloseWatch::OnLost(const Note& note, Instant back_since, Instant now,
                               const rendezvous::JobSpec& job, absl::Duration interval) {
  const std::string node = NoteField(note, "node");
  const absl::Duration closed = MillisecondsOf(note, "since_closed_ms");
  const absl::Duration silent = MillisecondsOf(note, "silent_ms");
  if (closed < job.reconnect_grace) {
    return absl::StrCat(node, " had no grace to come back");
  }
  if (silent - closed > 3 * interval + absl::Milliseconds(1)) {
    return absl::StrCat(node, " is lost by the end of a stream on which it was silent");
  }
  if (back_since.is_infinite() || now - back_since < kBack) return "";
  return absl::StrCat(node, " is lost although it was on its way back for ",
                      absl::FormatDuration(now - back_since));
}

std::string ProbeRate::OnStep(Instant now, const std::vector<Effect>& effects) {
  uint64_t probes = 0;
  for (const Effect& effect : effects) {
    const auto* send = std::get_if<Send>(&effect);
    const auto* probe = send == nullptr ? nullptr : std::get_if<Probe>(&*send->message);
    if (probe != nullptr && !probe->in_order) ++probes;
    if (const auto* note = std::get_if<Note>(&effect); note != nullptr) {
      if (Is(*note, "node_joined") || Is(*note, "node_reconnected")) steady_since_ = now;
    }
  }
  if (probes == 0) return "";
  ticks_.emplace_back(now, probes);
  probes_ += probes;
  for (; ticks_.front().first <= now - absl::Seconds(1); ticks_.pop_front()) {
    probes_ -= ticks_.front().second;
  }
  const uint64_t most = rendezvous::kProbesASecond + 2 * probes;
  if (probes_ <= most || now < steady_since_ + kSettling) return "";
  return absl::StrCat("more nodes are probed in a second than may be: ", probes_);
}

std::string ExcuseWatch::OnNote(const Note& note, Instant now, absl::Duration lease) {
  if (Is(note, "isolation_over")) excused_until_ = now + lease;
  const bool by_lease = Is(note, "node_lost") && NoteField(note, "why") == "lease expired";
  if (!by_lease || now >= excused_until_) return "";
  return absl::StrCat(NoteField(note, "node"), " has no lease after nobody was heard");
}

}  // namespace ddprun::sim
