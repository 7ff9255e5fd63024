#include "launcher/daemon/spare.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/daemon/spare_recipe.h"
#include "launcher/daemon/warden.h"
#include "launcher/keeper/channel.h"
#include "launcher/keeper/exec_child.h"
#include "launcher/os/text_files.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {
namespace {

// The keeper's channel and pidfd, and the warden's pidfd.
constexpr size_t kWardenFds = 3;

}  // namespace

Spare::Spare(EventLoop* loop, daemon::v1::Recipe recipe, std::string folder, std::string list,
             Hooks hooks)
    : loop_(loop),
      recipe_(std::move(recipe)),
      folder_(std::move(folder)),
      list_(std::move(list)),
      hooks_(std::move(hooks)) {}

Spare::~Spare() { unlink(absl::StrCat(folder_, "/", list_).c_str()); }

absl::Status Spare::Start() {
  if (recipe_.preload().empty() && !ReadKeptFile(recipe_.kept()).has_value()) {
    return absl::NotFoundError("what it imports is not known yet");
  }
  return StartWarden();
}

absl::Status Spare::StartWarden() {
  DDPRUN_ASSIGN_OR_RETURN(FdPair pair, MakeMessagePair());
  const std::vector<std::string> inherited(recipe_.inherited().begin(), recipe_.inherited().end());
  const ExecChildResult started = StartExecChild(
      {.argv = {"/proc/self/exe", std::string(kWardenCommand), "--for-ddprun-daemon"},
       .environment =
           ComposeEnvironment(inherited, {absl::StrCat(kWardenSocket, "=", pair.second.get())}, {}),
       .inherited_fd = pair.second.get()});
  if (started.error.has_value()) {
    return ErrnoStatus(started.error->error_number, StageName(started.error->stage));
  }
  warden_ = std::move(pair.first);
  watch_ = std::make_unique<FdWatch>(loop_, warden_.get(), [this] { OnWarden(); });
  return SendQueue(warden_.get()).Send(recipe_.setup().SerializeAsString());
}

void Spare::OnWarden() {
  absl::StatusOr<std::optional<Message>> message = ReceiveMessage(warden_.get());
  daemon::v1::WardenReady ready;
  if (message.ok() && !message->has_value()) return;
  if (!message.ok() || !ready.ParseFromString((*message)->bytes)) {
    return Leave("its keeper could not be started");
  }
  if (!ready.why_not().empty() || (*message)->fds.size() != kWardenFds) {
    return Leave(ready.why_not());
  }
  watch_.reset();
  std::vector<Fd>& fds = (*message)->fds;
  KeeperClient::Callbacks callbacks;
  callbacks.on_parked_said = [this](const std::string& text) { OnSaid(text); };
  callbacks.on_parked_ended = [this](const std::string& how) { OnEnded(how); };
  callbacks.on_keeper_lost = [this](const absl::Status& why) { Leave(std::string(why.message())); };
  keeper_ = KeeperClient::Create(loop_,
                                 {.pid = static_cast<pid_t>(ready.keeper_pid()),
                                  .channel = std::move(fds[0]),
                                  .isolation_timeout = absl::InfiniteDuration(),
                                  .pidfd = std::move(fds[1]),
                                  .warden_pidfd = std::move(fds[2]),
                                  .warden = std::move(warden_)},
                                 std::move(callbacks));
  Do(starter_.Begin(loop_->Now(), ReadKeptFile(recipe_.kept()), !recipe_.preload().empty()));
  LookAtStarter();
}

void Spare::OnSaid(const std::string& text) {
  if (absl::StartsWith(text, "ready ")) ready_ = text;
  Do(starter_.OnSaid(loop_->Now(), text));
  LookAtStarter();
}

void Spare::OnEnded(const std::string& how) {
  // If the interpreter was ready, the next one is started when a job asks, to avoid an endless
  // loop.
  if (told_) return Leave(absl::StrCat("its interpreter ", how));
  Do(starter_.OnEnded(loop_->Now(), how));
  LookAtStarter();
}

void Spare::LookAtStarter() {
  switch (starter_.state()) {
    case WarmStarter::State::kLoading:
      return;
    case WarmStarter::State::kReady:
      if (!std::exchange(told_, true)) hooks_.ready(starter_.bytes_held());
      return;
    case WarmStarter::State::kUnlearned:
    case WarmStarter::State::kHeld:
    case WarmStarter::State::kShort:
    case WarmStarter::State::kOff:
      return Leave(starter_.WhyCold());
  }
}

// Posted, because the hook destroys this.
void Spare::Leave(std::string why) {
  watch_.reset();
  told_ = true;
  loop_->Post([gone = hooks_.gone, why = std::move(why)] { gone(why); });
}

Spare::Leased Spare::Release() {
  Leased leased{.keeper = keeper_->Release(), .ready = ready_};
  keeper_.reset();
  return leased;
}

void Spare::Do(const std::vector<WarmEffect>& effects) {
  for (const WarmEffect& effect : effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
}

void Spare::Do(const struct Park& /*effect*/) {
  absl::StatusOr<ParkRequest> request =
      PreparePark(ParkRecipeOf(recipe_), starter_.learned(), folder_, list_, /*idle=*/true);
  absl::Status status = request.status();
  if (status.ok()) status = keeper_->Park(*request);
  if (status.ok()) return;
  starter_.OnNotParked();
  Do(starter_.GiveUp(std::string(status.message())));
}

void Spare::Do(const struct Unpark& /*effect*/) { keeper_->Unpark(); }

void Spare::Do(const Keep& /*effect*/) {
  if (recipe_.kept().empty()) return;
  const absl::Status status = WriteFile(recipe_.kept(), LearnedText(starter_.learned()));
  if (!status.ok()) Log(LogLevel::kInfo, status.message());  // it is learned anew
}

void Spare::Do(const Forget& /*effect*/) { unlink(recipe_.kept().c_str()); }

}  // namespace ddprun::launcher
