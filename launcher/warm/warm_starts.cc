#include "launcher/warm/warm_starts.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/os/folders.h"
#include "launcher/warm/bootstrap.h"

namespace ddprun::launcher {
namespace {

// What a worker has more than the parked interpreter it came from must fit in here.
constexpr size_t kRoomBytes = 16 << 10;
// Less than this share of the memory is free: it belongs to the training.
constexpr double kFreeShareMin = 0.25;

// At most `bytes_max` bytes. Errors: of open(2), read(2); RESOURCE_EXHAUSTED — it is longer.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  std::string text(bytes_max + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read '", path, "'"));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path, "' has more than ", bytes_max, " bytes"));
  }
  text.resize(size);
  return text;
}

// Whole or not at all, for who reads it meanwhile.
absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", draft, "'"));
  const absl::Status written = WriteAll(file.get(), text);
  if (written.ok() && rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(draft.c_str());
  return written.ok() ? ErrnoStatus(error, absl::StrCat("rename to '", path, "'")) : written;
}

// Of the machine's memory; 1 when that can't be told. Source: proc(5), /proc/meminfo.
double FreeShare() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/meminfo", 64 << 10);
  if (!text.ok()) return 1;
  double total = 0;
  double available = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    double* value = absl::ConsumePrefix(&line, "MemTotal:")       ? &total
                    : absl::ConsumePrefix(&line, "MemAvailable:") ? &available
                                                                  : nullptr;
    if (value == nullptr || !absl::ConsumeSuffix(&line, " kB")) continue;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(line), value)) return 1;
  }
  return total > 0 ? available / total : 1;
}

}  // namespace

std::string WhyCold(const LaunchPlan& plan) {
  if (!plan.runs_python) return "they run a program of their own, not a script in Python";
  if (plan.preflight != Preflight::kNone) return "they test the network first";
  for (uint32_t local_rank = 1; local_rank < plan.worker_count; ++local_rank) {
    if (WorkerArguments(plan, local_rank) != WorkerArguments(plan, 0)) {
      return "their arguments differ (--local-rank, or a ${local_rank} of yours)";
    }
  }
  if (!plan.worker_cpus.empty()) {
    return "each is bound to CPUs of its own, which libraries look at when they are imported";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<WarmStarts>> WarmStarts::Create(
    EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper, std::string folder,
    EnvironmentLookup environment, Hooks hooks) {
  std::unique_ptr<WarmStarts> starts(new WarmStarts(loop, plan, keeper, std::move(folder),
                                                    std::move(environment), std::move(hooks)));
  DDPRUN_RETURN_IF_ERROR(starts->MakeFiles());
  starts->Begin();
  return starts;
}

WarmStarts::WarmStarts(EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper,
                       std::string folder, EnvironmentLookup environment, Hooks hooks)
    : loop_(loop),
      plan_(plan),
      keeper_(keeper),
      folder_(std::move(folder)),
      environment_(std::move(environment)),
      hooks_(std::move(hooks)) {}

absl::Status WarmStarts::MakeFiles() {
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder_ + "/hook"));
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder_ + "/learned"));
  DDPRUN_RETURN_IF_ERROR(WriteFile(folder_ + "/hook/sitecustomize.py", kWarmBootstrap));
  written_ = Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!written_.valid()) return ErrnoStatus(errno, "inotify_init1");
  if (inotify_add_watch(written_.get(), (folder_ + "/learned").c_str(), IN_MOVED_TO) < 0) {
    return ErrnoStatus(errno, absl::StrCat("inotify_add_watch '", folder_, "/learned'"));
  }
  watch_ = std::make_unique<FdWatch>(loop_, written_.get(), [this] { ReadLearned(); });
  return absl::OkStatus();
}

void WarmStarts::Begin() {
  std::optional<Learned> kept;
  if (const auto text = ReadFile(plan_->warm.kept, kLearnedBytesMax); text.ok()) {
    absl::StatusOr<Learned> learned = ParseLearned(*text);
    // Nothing is lost: it is learned anew.
    if (!learned.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("'", plan_->warm.kept, "' is damaged and is not used: ",
                                        learned.status().message()));
    } else {
      kept = *std::move(learned);
    }
  }
  Do(starter_.Begin(loop_->Now(), std::move(kept), !plan_->warm.preload.empty()));
}

std::string WarmStarts::LearnedPath(uint32_t local_rank) const {
  return absl::StrCat(folder_, "/learned/", local_rank);
}

// Two of them tell what is the same for all.
uint32_t WarmStarts::learners() const { return std::min(plan_->worker_count, 2U); }

void WarmStarts::Prepare(SpawnRequest* request) {
  request->parked_patience = starter_.Patience(loop_->Now());
  if (!starter_.WantsToLearn() || request->local_rank >= learners()) return;
  std::string path = folder_ + "/hook";
  std::optional<std::string> before = environment_("PYTHONPATH");
  for (const std::string& variable : request->environment) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, "PYTHONPATH=")) before = std::string(value);
  }
  if (before.has_value()) {
    request->environment.push_back(absl::StrCat("DDPRUN_WARM_PYTHONPATH=", *before));
    if (!before->empty()) absl::StrAppend(&path, ":", *before);
  }
  request->environment.push_back("DDPRUN_WARM=learn");
  request->environment.push_back(
      absl::StrCat("DDPRUN_WARM_LEARNED=", LearnedPath(request->local_rank)));
  request->environment.push_back(absl::StrCat("PYTHONPATH=", path));
}

void WarmStarts::ReadLearned() {
  alignas(inotify_event) char buffer[4096];
  while (read(written_.get(), buffer, sizeof(buffer)) > 0) {
  }
  std::optional<Learned> all;
  for (uint32_t local_rank = 0; local_rank < learners(); ++local_rank) {
    const auto text = ReadFile(LearnedPath(local_rank), kLearnedBytesMax);
    if (!text.ok()) return;  // not yet
    absl::StatusOr<Learned> learned = ParseLearned(*text);
    if (!learned.ok()) {
      return Do(starter_.GiveUp(absl::StrCat(
          "what worker ", local_rank,
          " has written down of its imports can't be read: ", learned.status().message())));
    }
    all = all.has_value() ? MergeLearned(*std::move(all), *learned) : *std::move(learned);
  }
  if (all.has_value()) Do(starter_.OnLearned(loop_->Now(), *std::move(all)));
}

void WarmStarts::OnSaid(const std::string& text) { Do(starter_.OnSaid(loop_->Now(), text)); }

void WarmStarts::OnEnded(const std::string& how) { Do(starter_.OnEnded(loop_->Now(), how)); }

void WarmStarts::Do(const std::vector<WarmEffect>& effects) {
  for (const WarmEffect& effect : effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
}

void WarmStarts::Do(const struct Park& /*effect*/) {
  const absl::Status status = ParkInterpreter();
  if (!status.ok()) Do(starter_.GiveUp(std::string(status.message())));
}

absl::Status WarmStarts::ParkInterpreter() {
  if (const double free = FreeShare(); free < kFreeShareMin) {
    return absl::ResourceExhaustedError(
        absl::StrCat("of this machine's memory ", static_cast<int>(free * 100),
                     " % are free; an interpreter is kept ready from 25 % on"));
  }
  const std::vector<std::string> varying = VaryingVariables(*plan_);
  const std::string list = folder_ + "/parked";
  DDPRUN_RETURN_IF_ERROR(
      WriteFile(list, ParkedText(starter_.learned(), plan_->warm.preload, varying)));
  ParkRequest request;
  request.argv = WorkerArguments(*plan_, 0);
  request.environment = CommonEnvironment(*plan_, environment_);
  request.unset = varying;
  std::optional<std::string> path = environment_("PYTHONPATH");
  std::erase_if(request.environment, [&path](const std::string& variable) {
    absl::string_view value = variable;
    if (!absl::ConsumePrefix(&value, "PYTHONPATH=")) return false;
    path = std::string(value);
    return true;
  });
  request.unset.emplace_back("PYTHONPATH");
  request.tail = {absl::StrCat("DDPRUN_WARM_LEARNED=", list)};
  if (path.has_value()) request.tail.push_back(absl::StrCat("DDPRUN_WARM_PYTHONPATH=", *path));
  request.tail.push_back(absl::StrCat("PYTHONPATH=", folder_, "/hook",
                                      path.value_or("").empty() ? "" : ":", path.value_or("")));
  request.tail.push_back(absl::StrCat("DDPRUN_WARM_ROOM=", std::string(kRoomBytes, '.')));
  return keeper_->Park(request);
}

void WarmStarts::Do(const Keep& /*effect*/) {
  const std::string& path = plan_->warm.kept;
  if (path.empty()) return;
  absl::Status status = MakeFolders(path.substr(0, path.rfind('/')));
  if (status.ok()) status = WriteFile(path, LearnedText(starter_.learned()));
  if (!status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("what was learned of imports is not kept for the next job: ",
                                      status.message()));
  }
}

void WarmStarts::Do(const Forget& /*effect*/) { unlink(plan_->warm.kept.c_str()); }

}  // namespace ddprun::launcher
