#include "launcher/side_channels/watchdog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "launcher/side_channels/core/timer_table.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kSignalMax = 64;         // the kernel's _NSIG
constexpr double kExpirationMax = 1.0e12;  // beyond the year 30000

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a watchdog request ", what));
}

}  // namespace

absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line) {
  if (line.size() > kTimerLineBytesMax) return Wrong("is longer than 4096 bytes");
  const nlohmann::json json =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("is no JSON object");
  const auto field = [&json](const char* name) {
    const auto found = json.find(name);
    return found == json.end() ? nlohmann::json() : *found;
  };
  const nlohmann::json version = field("version");
  if (!version.is_null() && version != 1) return Wrong("has a version other than 1");
  const nlohmann::json pid = field("pid");
  if (!pid.is_number_unsigned() || pid.get<uint64_t>() == 0 ||
      pid.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return Wrong("has no pid");
  }
  const nlohmann::json scope = field("scope_id");
  if (!scope.is_string() ||
      scope.get_ref<const std::string&>().size() > TimerTable::kScopeBytesMax) {
    return Wrong("has no scope_id of at most 1024 bytes");
  }
  const nlohmann::json expiration = field("expiration_time");
  if (!expiration.is_number() || !(expiration.get<double>() <= kExpirationMax)) {
    return Wrong("has no expiration_time in seconds since the epoch");
  }
  TimerRequest request;
  request.pid = static_cast<uint32_t>(pid.get<uint64_t>());
  request.scope = scope.get<std::string>();
  request.expiration = expiration.get<double>();
  const nlohmann::json signal = field("signal");
  if (signal.is_null()) return request;
  if (!signal.is_number_integer() ||
      (signal.is_number_unsigned() && signal.get<uint64_t>() > uint64_t{kSignalMax})) {
    return Wrong("has a signal that doesn't exist");
  }
  request.signal = static_cast<int>(std::max<int64_t>(0, signal.get<int64_t>()));
  return request;
}

namespace {

// Farther deadlines are never met, and would not fit into an Instant.
constexpr absl::Duration kFarthest = absl::Hours(24 * 3650);

}  // namespace

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Create(EventLoop* loop, std::string path,
                                                           Callbacks callbacks) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) == 0) {
    if (!S_ISFIFO(facts.st_mode)) {
      return absl::AlreadyExistsError(absl::StrCat("TORCHELASTIC_TIMER_FILE '", path,
                                                   "' is there and is no FIFO; remove it, ",
                                                   "or give another path"));
    }
    unlink(path.c_str());
  }
  if (mkfifo(path.c_str(), 0600) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make the watchdog's FIFO '", path, "'"));
  }
  Fd fifo(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fifo.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open the watchdog's FIFO '", path, "'"));
  }
  return std::unique_ptr<Watchdog>(
      new Watchdog(loop, std::move(path), std::move(fifo), std::move(callbacks)));
}

Watchdog::Watchdog(EventLoop* loop, std::string path, Fd fifo, Callbacks callbacks)
    : loop_(loop),
      path_(std::move(path)),
      fifo_(std::move(fifo)),
      callbacks_(std::move(callbacks)),
      timer_(loop, [this] { CheckDeadlines(); }),
      readable_(std::make_unique<FdWatch>(loop, fifo_.get(), [this] {
        Read();
        timer_.Arm(timers_.NextDeadline());
      })) {}

Watchdog::~Watchdog() {
  readable_.reset();
  unlink(path_.c_str());
}

void Watchdog::Forget(uint32_t local_rank) { timers_.Forget(local_rank); }

void Watchdog::Clear() { timers_.Clear(); }

// One read(2) at a time: a flood delays other events by as much, and no more.
void Watchdog::Read() {
  char bytes[64 << 10];
  const ssize_t n = read(fifo_.get(), bytes, sizeof(bytes));
  if (n <= 0) return;
  absl::string_view text(bytes, static_cast<size_t>(n));
  for (size_t end = text.find('\n'); end != absl::string_view::npos; end = text.find('\n')) {
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!std::exchange(skip_to_end_, false)) TakeLine(absl::StrCat(rest_, line));
    rest_.clear();
  }
  rest_.append(text.data(), text.size());
  if (rest_.size() <= kTimerLineBytesMax) return;
  if (!skip_to_end_) Log(LogLevel::kWarning, "a watchdog request is longer than 4096 bytes");
  skip_to_end_ = true;
  rest_.clear();
}

void Watchdog::TakeLine(absl::string_view line) {
  if (line.empty()) return;
  const absl::StatusOr<TimerRequest> request = ParseTimerRequest(line);
  if (!request.ok()) {
    return Log(LogLevel::kWarning, absl::StrCat(request.status().message(), "; it is ignored"));
  }
  if (request->is_release()) return timers_.Release(request->pid, request->scope);
  const std::optional<uint32_t> local_rank = callbacks_.worker_of(static_cast<pid_t>(request->pid));
  if (!local_rank.has_value()) {
    return Log(LogLevel::kWarning, absl::StrCat("a watchdog request of process ", request->pid,
                                                ", which belongs to no worker, is ignored"));
  }
  // The only place that looks at the wall clock; see the header.
  const absl::Duration wall = absl::Now() - absl::UnixEpoch();
  const absl::Duration left =
      std::clamp(absl::Seconds(request->expiration) - wall, absl::ZeroDuration(), kFarthest);
  if (!timers_.Set(*local_rank, request->pid, request->scope, loop_->Now() + left,
                   request->signal)) {
    Log(LogLevel::kWarning,
        absl::StrCat("there are ", TimerTable::kTimersMax, " watchdog timers; no more are taken"));
  }
}

void Watchdog::CheckDeadlines() {
  Read();  // a release that came in time counts
  for (const TimerTable::Expired& expired : timers_.TakeExpired(loop_->Now())) {
    callbacks_.on_expired(expired);
  }
  timer_.Arm(timers_.NextDeadline());
}

}  // namespace ddprun::launcher
