#include "launcher/stores/core/tcp_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// Answers of one byte.
constexpr uint8_t kReady = 0;
constexpr uint8_t kNotReady = 1;
constexpr uint8_t kStopWaiting = 0;
constexpr uint8_t kWaitCanceled = 1;

// Longer values are sent from where they lie instead of being copied.
constexpr size_t kCopiedBytesMax = 512;

std::string LittleEndian(uint64_t number, size_t bytes) {
  std::string text(bytes, '\0');
  for (char& byte : text) {
    byte = static_cast<char>(number & 0xff);
    number >>= 8;
  }
  return text;
}

}  // namespace

void TcpStore::Open(TcpConnectionId connection) {
  const bool fresh =
      connections_.emplace(connection, std::make_unique<Connection>(bounds_.request)).second;
  DDPRUN_CHECK(fresh, "two connections with one id");
}

std::vector<TcpStoreEffect> TcpStore::Receive(TcpConnectionId connection, absl::string_view bytes) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return {};
  TcpStoreParser& parser = found->second->parser;
  const size_t held_before = parser.held_bytes();
  absl::Status status;
  while (status.ok()) {
    absl::StatusOr<std::optional<TcpStoreRequest>> request = parser.Next(&bytes);
    if (!request.ok()) {
      status = request.status();
    } else if (!request->has_value()) {
      break;
    } else {
      found->second->has_asked = true;
      status = Handle(connection, **std::move(request));
    }
  }
  bytes_ -= held_before;
  if (status.ok()) status = Reserve(parser.held_bytes(), 0, /*new_key=*/false);
  if (!status.ok()) {
    bytes_ += parser.held_bytes();  // which Close() takes off
    Close(connection);
    effects_.push_back({.connection = connection, .bytes = "", .value = nullptr, .error = status});
  }
  return std::exchange(effects_, {});
}

void TcpStore::Close(TcpConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  Unwatch(found->second.get());
  bytes_ -= found->second->parser.held_bytes();
  connections_.erase(found);
}

bool TcpStore::HasAsked(TcpConnectionId connection) const {
  const auto found = connections_.find(connection);
  return found != connections_.end() && found->second->has_asked;
}

std::optional<uint32_t> TcpStore::PingOf(TcpConnectionId connection) const {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? std::nullopt : found->second->ping;
}

absl::Status TcpStore::Handle(TcpConnectionId connection, TcpStoreRequest request) {
  switch (request.verb) {
    case TcpStoreVerb::kPing:
      connections_.at(connection)->ping = static_cast<uint32_t>(request.number);
      Reply(connection, LittleEndian(static_cast<uint64_t>(request.number), sizeof(uint32_t)));
      break;
    case TcpStoreVerb::kSet:
      return Set(connection, std::move(request));
    case TcpStoreVerb::kCompareSet:
      return CompareSet(connection, std::move(request));
    case TcpStoreVerb::kGet:
    case TcpStoreVerb::kMultiGet:
      for (const std::string& key : request.keys) Get(connection, key);
      break;
    case TcpStoreVerb::kAdd:
      return Add(connection, request);
    case TcpStoreVerb::kCheck: {
      const bool all = std::all_of(request.keys.begin(), request.keys.end(),
                                   [this](const std::string& key) { return IsThere(key); });
      ReplyByte(connection, all ? kReady : kNotReady);
      break;
    }
    case TcpStoreVerb::kWait:
      return WaitFor(connection, request.keys);
    case TcpStoreVerb::kCount:
      ReplyNumber(connection, static_cast<int64_t>(values_.size()));
      break;
    case TcpStoreVerb::kDelete:
      Delete(connection, request.keys[0]);
      break;
    case TcpStoreVerb::kAppend:
      return Append(connection, std::move(request));
    case TcpStoreVerb::kCancelWait:
      Unwatch(connections_.at(connection).get());
      ReplyByte(connection, kWaitCanceled);
      break;
    case TcpStoreVerb::kQueuePush:
      return QueuePush(connection, std::move(request));
    case TcpStoreVerb::kQueuePop:
      QueuePop(connection, request.keys[0]);
      break;
    case TcpStoreVerb::kQueueLength: {
      const auto queue = queues_.find(request.keys[0]);
      ReplyNumber(connection,
                  queue == queues_.end() ? 0 : static_cast<int64_t>(queue->second.size()));
      break;
    }
    case TcpStoreVerb::kListKeys:
      ListKeys(connection);
      break;
    case TcpStoreVerb::kBarrier:
      return Barrier(connection, request);
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------- values

absl::Status TcpStore::Set(TcpConnectionId /*connection*/, TcpStoreRequest request) {
  DDPRUN_RETURN_IF_ERROR(Put(request.keys[0], std::move(request.value)));
  Wake(request.keys[0]);
  return absl::OkStatus();
}

// An absent key equals the empty value; where that is not what is expected, torch's server answers
// what the caller expected, and so does this one.
absl::Status TcpStore::CompareSet(TcpConnectionId connection, TcpStoreRequest request) {
  const std::string& key = request.keys[0];
  const auto found = values_.find(key);
  const bool absent = found == values_.end();
  if (absent ? !request.expected.empty() : *found->second != request.expected) {
    if (absent) {
      ReplyText(connection, request.expected);
    } else {
      ReplyValue(connection, found->second);
    }
    return absl::OkStatus();
  }
  DDPRUN_RETURN_IF_ERROR(Put(key, std::move(request.value)));
  ReplyValue(connection, values_.at(key));
  Wake(key);
  return absl::OkStatus();
}

absl::Status TcpStore::Add(TcpConnectionId connection, const TcpStoreRequest& request) {
  const std::string& key = request.keys[0];
  DDPRUN_ASSIGN_OR_RETURN(const int64_t sum, Sum(key, request.number));
  DDPRUN_RETURN_IF_ERROR(Put(key, absl::StrCat(sum)));
  ReplyNumber(connection, sum);
  Wake(key);
  return absl::OkStatus();
}

absl::Status TcpStore::Append(TcpConnectionId connection, TcpStoreRequest request) {
  const auto found = values_.find(request.keys[0]);
  if (found == values_.end()) return Set(connection, std::move(request));
  Value& value = found->second;
  if (value->size() + request.value.size() > bounds_.request.value_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("append to ", Quoted(request.keys[0]), ": the value would have ",
                     value->size() + request.value.size(), " bytes, at most ",
                     bounds_.request.value_bytes, " are allowed; use several keys"));
  }
  DDPRUN_RETURN_IF_ERROR(Reserve(request.value.size(), 0, /*new_key=*/false));
  if (value.use_count() > 1) value = std::make_shared<std::string>(*value);  // is being sent
  value->append(request.value);
  Wake(request.keys[0]);
  return absl::OkStatus();
}

// The first client makes the key. Clients that wait change its count without waking others.
absl::Status TcpStore::Barrier(TcpConnectionId connection, const TcpStoreRequest& request) {
  const std::string& key = request.keys[0];
  DDPRUN_ASSIGN_OR_RETURN(const int64_t count, Sum(key, 1));
  DDPRUN_RETURN_IF_ERROR(Put(key, absl::StrCat(count)));
  if (count < request.number) return Watch(connection, {key});
  ReplyByte(connection, kStopWaiting);
  Wake(key);
  return absl::OkStatus();
}

void TcpStore::Get(TcpConnectionId connection, const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return ReplyText(connection, "");
  ReplyValue(connection, found->second);
}

void TcpStore::Delete(TcpConnectionId connection, const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return ReplyNumber(connection, 0);
  bytes_ -= found->first.size() + found->second->size();
  values_.erase(found);
  ReplyNumber(connection, 1);
}

void TcpStore::ListKeys(TcpConnectionId connection) {
  std::vector<absl::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  ReplyNumber(connection, static_cast<int64_t>(keys.size()));
  for (const absl::string_view key : keys) ReplyText(connection, key);
}

bool TcpStore::IsThere(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

absl::StatusOr<int64_t> TcpStore::Sum(const std::string& key, int64_t amount) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return amount;
  int64_t number = 0;
  int64_t sum = 0;
  if (!absl::SimpleAtoi(*found->second, &number) || __builtin_add_overflow(number, amount, &sum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("add ", amount, " to ", Quoted(key), ": its value ", Quoted(*found->second),
                     " is no decimal number, or the sum is beyond 64 bits; "
                     "add only to keys that were made by add"));
  }
  return sum;
}

absl::Status TcpStore::Put(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    DDPRUN_RETURN_IF_ERROR(Reserve(key.size() + value.size(), 0, /*new_key=*/true));
    values_.emplace(key, std::make_shared<std::string>(std::move(value)));
    return absl::OkStatus();
  }
  DDPRUN_RETURN_IF_ERROR(Reserve(value.size(), found->second->size(), /*new_key=*/false));
  if (found->second.use_count() > 1) {
    found->second = std::make_shared<std::string>(std::move(value));
  } else {
    *found->second = std::move(value);
  }
  return absl::OkStatus();
}

absl::Status TcpStore::Reserve(size_t more, size_t less, bool new_key) {
  const size_t keys = values_.size() + queues_.size() + (new_key ? 1 : 0);
  const size_t after = bytes_ - less + more;
  if ((new_key && keys > bounds_.keys) || (more > less && after > bounds_.bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store would hold ", keys, " keys and ", after, " bytes, at most ",
                     bounds_.keys, " and ", bounds_.bytes, " are allowed; delete keys"));
  }
  bytes_ = after;
  return absl::OkStatus();
}

// ------------------------------------------------------------- queues

absl::Status TcpStore::QueuePush(TcpConnectionId /*connection*/, TcpStoreRequest request) {
  const std::string& key = request.keys[0];
  const bool fresh = !queues_.contains(key);
  DDPRUN_RETURN_IF_ERROR(Reserve(request.value.size() + (fresh ? key.size() : 0), 0, fresh));
  queues_[key].push_back(std::make_shared<std::string>(std::move(request.value)));
  WakeOne(key);
  return absl::OkStatus();
}

void TcpStore::QueuePop(TcpConnectionId connection, const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return ReplyNumber(connection, 0);
  std::deque<Value>& queue = found->second;
  ReplyNumber(connection, static_cast<int64_t>(queue.size()));
  ReplyValue(connection, queue.front());
  bytes_ -= queue.front()->size();
  queue.pop_front();
  if (!queue.empty()) return;
  bytes_ -= key.size();
  queues_.erase(found);
}

// ------------------------------------------------------------- waiting

absl::Status TcpStore::WaitFor(TcpConnectionId connection, const std::vector<std::string>& keys) {
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (!IsThere(key)) absent.push_back(key);
  }
  std::sort(absent.begin(), absent.end());
  absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
  if (!absent.empty()) return Watch(connection, std::move(absent));
  ReplyByte(connection, kStopWaiting);
  return absl::OkStatus();
}

// A client that waits once more has given the last time up: those before CANCEL_WAIT only stop
// listening.
absl::Status TcpStore::Watch(TcpConnectionId connection, std::vector<std::string> keys) {
  Connection& waiter = *connections_.at(connection);
  Unwatch(&waiter);
  size_t bytes = 0;
  for (const std::string& key : keys) bytes += key.size();
  DDPRUN_RETURN_IF_ERROR(Reserve(bytes, 0, /*new_key=*/false));
  const WaitId id = ++last_wait_;
  for (const std::string& key : keys) watchers_[key].insert(id);
  const size_t missing = keys.size();
  waits_.emplace(id, Wait{.connection = connection, .keys = std::move(keys), .missing = missing});
  waiter.wait = id;
  return absl::OkStatus();
}

void TcpStore::Unwatch(Connection* connection) {
  if (!connection->wait.has_value()) return;
  const auto node = waits_.extract(*connection->wait);
  for (const std::string& key : node.mapped().keys) {
    bytes_ -= key.size();
    const auto watchers = watchers_.find(key);
    if (watchers == watchers_.end()) continue;
    watchers->second.erase(node.key());
    if (watchers->second.empty()) watchers_.erase(watchers);
  }
  connection->wait.reset();
}

void TcpStore::Wake(const std::string& key) {
  const auto found = watchers_.find(key);
  if (found == watchers_.end()) return;
  const std::set<WaitId> woken = std::move(found->second);
  watchers_.erase(found);
  for (const WaitId id : woken) Seen(id);
}

void TcpStore::WakeOne(const std::string& key) {
  const auto found = watchers_.find(key);
  if (found == watchers_.end()) return;
  const WaitId id = *found->second.begin();
  found->second.erase(found->second.begin());
  if (found->second.empty()) watchers_.erase(found);
  Seen(id);
}

void TcpStore::Seen(WaitId id) {
  Wait& wait = waits_.at(id);
  if (--wait.missing > 0) return;
  const TcpConnectionId connection = wait.connection;
  Unwatch(connections_.at(connection).get());
  ReplyByte(connection, kStopWaiting);
}

// ------------------------------------------------------------- replies

void TcpStore::Reply(TcpConnectionId connection, absl::string_view bytes) {
  if (effects_.empty() || effects_.back().connection != connection ||
      effects_.back().value != nullptr) {
    effects_.push_back({.connection = connection, .bytes = "", .value = nullptr, .error = {}});
  }
  absl::StrAppend(&effects_.back().bytes, bytes);
}

void TcpStore::ReplyByte(TcpConnectionId connection, uint8_t byte) {
  Reply(connection, std::string(1, static_cast<char>(byte)));
}

void TcpStore::ReplyNumber(TcpConnectionId connection, int64_t number) {
  Reply(connection, LittleEndian(static_cast<uint64_t>(number), sizeof(number)));
}

void TcpStore::ReplyText(TcpConnectionId connection, absl::string_view text) {
  ReplyNumber(connection, static_cast<int64_t>(text.size()));
  Reply(connection, text);
}

void TcpStore::ReplyValue(TcpConnectionId connection, const Value& value) {
  ReplyNumber(connection, static_cast<int64_t>(value->size()));
  if (value->size() <= kCopiedBytesMax) return Reply(connection, *value);
  effects_.back().value = value;
}

void TcpStore::CheckInvariants() const {
  size_t bytes = 0;
  for (const auto& [key, value] : values_) bytes += key.size() + value->size();
  for (const auto& [key, queue] : queues_) {
    DDPRUN_CHECK(!queue.empty(), "an empty queue is kept");
    bytes += key.size();
    for (const Value& value : queue) bytes += value->size();
  }
  size_t waiting = 0;
  for (const auto& [id, connection] : connections_) {
    bytes += connection->parser.held_bytes();
    if (!connection->wait.has_value()) continue;
    ++waiting;
    DDPRUN_CHECK(waits_.at(*connection->wait).connection == id, "a wait of another connection");
  }
  DDPRUN_CHECK(waiting == waits_.size(), "a wait without a connection");
  size_t missing = 0;
  for (const auto& [id, wait] : waits_) {
    size_t watched = 0;
    for (const std::string& key : wait.keys) {
      bytes += key.size();
      const auto watchers = watchers_.find(key);
      watched += watchers != watchers_.end() && watchers->second.contains(id) ? 1 : 0;
    }
    DDPRUN_CHECK(watched == wait.missing && watched > 0, "a wait doesn't watch what it misses");
    missing += watched;
  }
  size_t watching = 0;
  for (const auto& [key, ids] : watchers_) watching += ids.size();
  DDPRUN_CHECK(watching == missing, "a key is watched by nobody who waits");
  DDPRUN_CHECK(bytes == bytes_ && bytes_ <= bounds_.bytes, "the bytes held are wrong");
  DDPRUN_CHECK(values_.size() + queues_.size() <= bounds_.keys, "too many keys");
}

}  // namespace ddprun::launcher
