#include "launcher/daemon/daemon.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/daemon/spare.h"
#include "launcher/daemon/warden.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/files.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {
namespace {

// How long after a job's start the next interpreter begins to import: the job's first steps need
// the machine.
constexpr absl::Duration kPause = absl::Seconds(1);
constexpr size_t kVisitorsMax = 1024;

void Send(int socket, const daemon::v1::Answer& answer, std::vector<Fd> fds = {}) {
  // If the client has left meanwhile, the answer's descriptors are just closed.
  SendQueue(socket).Send(answer.SerializeAsString(), std::move(fds)).IgnoreError();
}

const char* WordOf(SpareShelf::State state, bool starts) {
  switch (state) {
    case SpareShelf::State::kReady:
      return "ready";
    case SpareShelf::State::kLoading:
      return "imports";
    case SpareShelf::State::kEmpty:
    case SpareShelf::State::kBarred:
      return starts ? "waits" : "none";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const DaemonConfig& config) {
  DDPRUN_ASSIGN_OR_RETURN(DaemonSeat seat, TakeDaemonSeat(config.folder));
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  std::unique_ptr<Daemon> daemon(new Daemon(config, std::move(seat), std::move(loop)));
  DDPRUN_RETURN_IF_ERROR(daemon->Begin());
  return daemon;
}

Daemon::Daemon(DaemonConfig config, DaemonSeat seat, std::unique_ptr<EventLoop> loop)
    : config_(std::move(config)),
      seat_(std::move(seat)),
      loop_(std::move(loop)),
      shelf_(config_.memory_max, config_.idle_max) {}

Daemon::~Daemon() {
  unlink((config_.folder + "/socket").c_str());
  visitors_.clear();
  door_.reset();
  spares_.clear();
  RemoveFolder(config_.folder + "/hook");
  timer_.reset();
  pressure_.reset();
  signals_.clear();
}

absl::Status Daemon::Begin() {
  signal(SIGPIPE, SIG_IGN);
  DDPRUN_RETURN_IF_ERROR(WriteParkHook(config_.folder));
  door_ = std::make_unique<FdWatch>(loop_.get(), seat_.listener.get(), [this] { Accept(); });
  timer_ = std::make_unique<Timer>(loop_.get(), [this] {
    Do(shelf_.OnTime(loop_->Now()));
    Rearm();
  });
  absl::StatusOr<std::unique_ptr<PressureWatch>> pressure =
      PressureWatch::Create(loop_.get(), [this] { Do(shelf_.OnShort()); });
  if (pressure.ok()) pressure_ = *std::move(pressure);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    signals_.push_back(
        std::make_unique<SignalWatch>(loop_.get(), number, [this] { loop_->Stop(); }));
  }
  signals_.push_back(
      std::make_unique<SignalWatch>(loop_.get(), SIGCHLD, [this] { ReapWardens(); }));
  return absl::OkStatus();
}

void Daemon::Run() { loop_->Run(); }

void Daemon::ReapWardens() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

void Daemon::Accept() {
  Fd socket(accept4(seat_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid() || visitors_.size() >= kVisitorsMax) return;
  if (const absl::Status status = CheckOwnPeer(socket.get()); !status.ok()) {
    return Notify(absl::StrCat("daemon: refused: ", status.message()));
  }
  const int fd = socket.get();
  const auto visitor = visitors_.insert(visitors_.end(), Visitor{.socket = std::move(socket)});
  visitor->watch = std::make_unique<FdWatch>(loop_.get(), fd, [this, visitor] { Read(visitor); });
}

void Daemon::Read(Visitors::iterator visitor) {
  const absl::StatusOr<std::optional<Message>> message = ReceiveMessage(visitor->socket.get());
  if (message.ok() && !message->has_value()) return;
  daemon::v1::Request request;
  if (!message.ok() || !request.ParseFromString((*message)->bytes)) return Leave(visitor);
  OnRequest(request, &*visitor);
}

void Daemon::Leave(Visitors::iterator visitor) {
  const uint64_t kind = visitor->kind;
  visitors_.erase(visitor);
  if (kind == 0) return;
  Do(shelf_.OnLeft(loop_->Now(), kind));
  Rearm();
}

void Daemon::OnRequest(const daemon::v1::Request& request, Visitor* visitor) {
  daemon::v1::Answer answer;
  if (request.program() != ProgramIdentity() && !request.has_stop()) {
    answer.mutable_cold()->set_why(
        "it is of another ddprun than this one; end it by ddprun daemon stop, and start it anew");
    answer.mutable_cold()->set_differs(true);
    return Send(visitor->socket.get(), answer);
  }
  switch (request.body_case()) {
    case daemon::v1::Request::kLease:
      return OnLease(request.lease().recipe(), visitor);
    case daemon::v1::Request::kSettled:
      Do(shelf_.OnSettled(loop_->Now(), visitor->kind, kPause));
      return Rearm();
    case daemon::v1::Request::kStop:
    case daemon::v1::Request::kLook:
      *answer.mutable_shelf() = ShowShelf();
      Send(visitor->socket.get(), answer);
      if (request.has_stop()) loop_->Stop();
      return;
    case daemon::v1::Request::BODY_NOT_SET:
      return;
  }
}

void Daemon::OnLease(const daemon::v1::Recipe& recipe, Visitor* visitor) {
  if (recipe.argv().empty()) return;
  const SpareShelf::Asked asked = shelf_.OnAsked(loop_->Now(), recipe.name(), FactsOf(recipe));
  visitor->kind = asked.id;
  recipes_[asked.id] = recipe;
  std::erase_if(recipes_,
                [this](const auto& entry) { return !shelf_.kinds().contains(entry.first); });
  daemon::v1::Answer answer;
  const auto spare = spares_.find(asked.id);
  if (!asked.leased || spare == spares_.end()) {
    answer.mutable_cold()->set_why(asked.why);
    answer.mutable_cold()->set_differs(asked.differs);
    Send(visitor->socket.get(), answer);
    return Rearm();
  }
  Spare::Leased leased = spare->second->Release();
  spares_.erase(spare);
  NotifyOf(asked.id, "has got a job");
  answer.mutable_leased()->set_keeper_pid(static_cast<uint32_t>(leased.keeper.pid));
  answer.mutable_leased()->set_ready(leased.ready);
  std::vector<Fd> fds;
  fds.push_back(std::move(leased.keeper.channel));
  fds.push_back(std::move(leased.keeper.pidfd));
  fds.push_back(std::move(leased.keeper.warden_pidfd));
  fds.push_back(std::move(leased.keeper.warden));
  Send(visitor->socket.get(), answer, std::move(fds));
  Rearm();
}

void Daemon::Do(const std::vector<ShelfEffect>& effects) {
  for (const ShelfEffect& effect : effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
}

void Daemon::Do(const StartSpare& effect) {
  const uint64_t id = effect.id;
  if (MemoryIsShort()) {
    return shelf_.OnGone(id, "less than a quarter of the machine's memory is free");
  }
  Spare::Hooks hooks;
  hooks.ready = [this, id](uint64_t bytes) {
    // Posted, because it may destroy the calling Spare.
    loop_->Post([this, id, bytes] { OnReady(id, bytes); });
  };
  hooks.gone = [this, id](const std::string& why) { OnGone(id, why); };
  auto spare = std::make_unique<Spare>(loop_.get(), recipes_[id], config_.folder,
                                       absl::StrCat("list-", id), std::move(hooks));
  const absl::Status status = spare->Start();
  if (!status.ok()) return shelf_.OnGone(id, std::string(status.message()));
  spares_[id] = std::move(spare);
}

void Daemon::Do(const EndSpare& effect) {
  if (spares_.erase(effect.id) != 0) NotifyOf(effect.id, absl::StrCat("is ended: ", effect.why));
}

void Daemon::OnReady(uint64_t id, uint64_t bytes) {
  if (!spares_.contains(id)) return;
  NotifyOf(id, absl::StrCat("is ready, ", BytesText(bytes)));
  Do(shelf_.OnReady(loop_->Now(), id, bytes));
  Rearm();
}

void Daemon::OnGone(uint64_t id, const std::string& why) {
  if (spares_.erase(id) != 0) {
    NotifyOf(id, absl::StrCat("is gone: ", why));
    shelf_.OnGone(id, why);
  }
  Rearm();
}

void Daemon::NotifyOf(uint64_t id, const std::string& what) {
  Notify(absl::StrCat("daemon: the interpreter of ", Quoted(recipes_[id].name()), " ", what));
}

daemon::v1::Shelf Daemon::ShowShelf() const {
  daemon::v1::Shelf shown;
  shown.set_bytes_max(shelf_.bytes_max());
  shown.set_pid(static_cast<uint32_t>(getpid()));
  for (const auto& [id, kind] : shelf_.kinds()) {
    daemon::v1::Spare* spare = shown.add_spares();
    spare->set_name(kind.name);
    spare->set_state(WordOf(kind.state, !kind.start_at.is_infinite()));
    spare->set_bytes(kind.bytes);
    spare->set_unused_ms(absl::ToInt64Milliseconds(loop_->Now() - kind.used));
    spare->set_why_none(kind.why);
  }
  return shown;
}

}  // namespace ddprun::launcher
