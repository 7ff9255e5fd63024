#include "rendezvous/server/event_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

size_t BytesOf(const Note& note) {
  size_t bytes = note.event.size();
  for (const auto& [name, value] : note.fields) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

void EventRing::Add(Instant now, absl::Time wall_time, const Note& note) {
  entries_.push_back({.number = ++last_, .wall_time = wall_time, .time = now, .note = note});
  bytes_ += BytesOf(note);
  while (entries_.size() > 1 && (entries_.size() > kEventsMax || bytes_ > kEventBytesMax)) {
    bytes_ -= BytesOf(entries_.front().note);
    entries_.pop_front();
  }
  NotifyListeners();
}

void EventRing::Close() {
  if (std::exchange(closed_, true)) return;
  NotifyListeners();
}

const EventRing::Entry* EventRing::After(uint64_t number) const {
  if (entries_.empty() || number >= last_) return nullptr;
  const uint64_t first = entries_.front().number;
  return &entries_[number < first ? 0 : static_cast<size_t>(number + 1 - first)];
}

uint64_t EventRing::Subscribe(std::function<void()> listener) {
  listeners_.emplace(++last_subscription_, std::move(listener));
  return last_subscription_;
}

void EventRing::NotifyListeners() {
  std::vector<uint64_t> subscriptions;
  for (const auto& [subscription, listener] : listeners_) subscriptions.push_back(subscription);
  for (const uint64_t subscription : subscriptions) {
    const auto found = listeners_.find(subscription);
    if (found == listeners_.end()) continue;
    const std::function<void()> listener = found->second;  // it may unsubscribe
    listener();
  }
}

namespace {

// Bytes of a message beyond its first event.
constexpr size_t kBatchBytes = 64U << 10;

void Write(const EventRing::Entry& entry, v1::JobEvent* proto) {
  proto->set_number(entry.number);
  proto->set_wall_time_ms(static_cast<uint64_t>(absl::ToUnixMillis(entry.wall_time)));
  proto->set_monotonic_us(static_cast<uint64_t>(entry.time.nanoseconds()) / 1000);
  proto->set_event(entry.note.event);
  for (const auto& [name, value] : entry.note.fields) {
    v1::EventField* field = proto->add_fields();
    field->set_name(name);
    field->set_value(CutText(value, kTextBytesMax));
  }
}

}  // namespace

EventWatch* EventWatch::Create(Owner* owner, std::shared_ptr<LoopInbox> inbox,
                               std::shared_ptr<CallRegistry> registry,
                               const v1::WatchEventsRequest& request, const Caller& caller) {
  const std::shared_ptr<EventWatch> watch(new EventWatch(std::move(inbox), std::move(registry)));
  watch->self_ = watch;
  absl::Status status = watch->registry_->Add(Kind::kWatch, watch, caller);
  if (status.ok() && !watch->registry_->Charge(caller)) status = TooManyCalls();
  if (!status.ok()) {
    watch->finished_ = true;  // the loop never learns of the watch, and doesn't end it
    watch->Finish(ToGrpcStatus(status));
    return watch.get();
  }
  watch->inbox_->Post(
      [owner, watch, request, peer = caller.peer] { owner->OnWatchEvents(request, peer, watch); });
  return watch.get();
}

// ------------------------------------------------------------- gRPC's threads

void EventWatch::OnWriteDone(bool ok) {
  inbox_->Post([self = shared_from_this(), ok] {
    self->writing_ = false;
    ok ? self->Advance() : self->FinishNow(absl::CancelledError("nobody reads any more"));
  });
}

void EventWatch::OnCancel() {
  inbox_->Post([self = shared_from_this()] {
    self->FinishNow(absl::CancelledError("nobody reads any more"));
  });
}

void EventWatch::OnDone() {
  registry_->Remove(this);
  self_.reset();  // may destroy this
}

// ------------------------------------------------------------- the loop

void EventWatch::Begin(const std::string& run_id, std::shared_ptr<EventRing> ring, uint64_t after,
                       bool follow) {
  if (finished_) return;
  message_.set_run_id(run_id);
  ring_ = std::move(ring);
  sent_ = after;
  follow_ = follow;
  subscription_ = ring_->Subscribe([this] { Advance(); });
  Advance();
}

// Fills the message with the events after the last one sent. Returns false if there are none.
bool EventWatch::Collect() {
  message_.clear_events();
  size_t bytes = 0;
  while (const EventRing::Entry* entry = ring_->After(sent_)) {
    if (bytes > kBatchBytes) break;
    v1::JobEvent* event = message_.add_events();
    Write(*entry, event);
    bytes += event->ByteSizeLong();
    sent_ = entry->number;
  }
  return message_.events_size() > 0;
}

void EventWatch::Advance() {
  if (writing_ || finished_) return;
  if (Collect()) {
    writing_ = true;
    return StartWrite(&message_);
  }
  if (!follow_ || ring_->closed()) FinishNow(absl::OkStatus());
}

void EventWatch::FinishNow(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  if (ring_ != nullptr) ring_->Unsubscribe(subscription_);
  // At the end of the server, events since the last write go with the status.
  if (ring_ != nullptr && !writing_ && !absl::IsCancelled(status) && Collect()) {
    return StartWriteAndFinish(&message_, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  Finish(ToGrpcStatus(status));
}

}  // namespace ddprun::rendezvous
