#include "launcher/daemon/spare.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/daemon/warden.h"
#include "launcher/keeper/agent_seat.h"
#include "launcher/keeper/channel.h"
#include "launcher/keeper/exec_child.h"
#include "launcher/os/files.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {
namespace {

// Variables of a shell, a terminal or a login, and of one job.
constexpr const char* kLoose[] = {"_",
                                  "GNOME_TERMINAL_SCREEN",
                                  "GPG_TTY",
                                  "INVOCATION_ID",
                                  "JOURNAL_STREAM",
                                  "OLDPWD",
                                  "SHLVL",
                                  "SSH_CLIENT",
                                  "SSH_CONNECTION",
                                  "SSH_TTY",
                                  "STY",
                                  "SYSTEMD_EXEC_PID",
                                  "TMUX",
                                  "TMUX_PANE",
                                  "TORCHELASTIC_MAX_RESTARTS",
                                  "TORCHELASTIC_RUN_ID",
                                  "WINDOW",
                                  "WINDOWID",
                                  "XDG_SESSION_ID"};
// Ours, which no library reads.
constexpr const char* kLoosePrefixes[] = {"DDPRUN_", "PET_"};

// Indexed by the numbers of setrlimit(2), which are equal on all machines that ddprun is built for.
constexpr const char* kLimits[] = {"processor time",
                                   "file sizes",
                                   "data",
                                   "the stack",
                                   "core files",
                                   "resident memory",
                                   "processes",
                                   "open files",
                                   "locked memory",
                                   "address space",
                                   "file locks",
                                   "pending signals",
                                   "message queues",
                                   "niceness",
                                   "realtime priority",
                                   "realtime processor time"};

std::string NameOf(const std::string& variable) { return variable.substr(0, variable.find('=')); }

bool IsLoose(const std::string& name) {
  return std::any_of(std::begin(kLoose), std::end(kLoose),
                     [&name](const char* loose) { return name == loose; }) ||
         std::any_of(std::begin(kLoosePrefixes), std::end(kLoosePrefixes),
                     [&name](const char* prefix) { return absl::StartsWith(name, prefix); });
}

// A digest instead of the value, because the daemon must not keep secrets while it lives.
std::string Digest(absl::string_view value) {
  return absl::StrCat(absl::Hex(StableHash(value), absl::kZeroPad16), ".", value.size());
}

void AddVariables(const google::protobuf::RepeatedPtrField<std::string>& variables,
                  SpareFacts* facts) {
  for (const std::string& variable : variables) {
    const std::string name = NameOf(variable);
    if (!IsLoose(name)) (*facts)[absl::StrCat(kSecretFact, name)] = Digest(variable);
  }
}

}  // namespace

absl::StatusOr<daemon::v1::Recipe> MakeSpareRecipe(const LaunchPlan& plan,
                                                   const EnvironmentLookup& environment) {
  daemon::v1::Recipe recipe;
  DDPRUN_ASSIGN_OR_RETURN(*recipe.mutable_setup(), OwnSetup());
  const ParkRecipe park = MakeParkRecipe(plan, environment);
  recipe.set_name(BaseName(plan.entry_point));
  recipe.set_kept(plan.warm.kept);
  for (const std::string& argument : park.argv) recipe.add_argv(argument);
  for (const std::string& module : park.preload) recipe.add_preload(module);
  recipe.set_has_python_path(park.python_path.has_value());
  recipe.set_python_path(park.python_path.value_or(""));
  std::vector<std::string> varying = park.varying;
  for (const std::string& variable : OwnEnvironment()) {
    recipe.add_inherited(variable);
    if (IsLoose(NameOf(variable))) varying.push_back(NameOf(variable));
  }
  for (const std::string& variable : park.environment) {
    if (IsLoose(NameOf(variable))) {
      varying.push_back(NameOf(variable));
    } else {
      recipe.add_environment(variable);
    }
  }
  for (const std::string& name : varying) recipe.add_varying(name);
  return recipe;
}

SpareFacts FactsOf(const daemon::v1::Recipe& recipe) {
  const daemon::v1::Setup& setup = recipe.setup();
  SpareFacts facts(setup.facts().begin(), setup.facts().end());
  AddVariables(recipe.inherited(), &facts);
  AddVariables(recipe.environment(), &facts);
  facts["the interpreter"] = recipe.argv().empty() ? "" : recipe.argv(0);
  facts["the command"] = absl::StrJoin(recipe.argv(), " ");
  // Words with blanks in them, too.
  facts["the words of the command"] = Digest(absl::StrJoin(recipe.argv(), "\n"));
  facts["--preload"] = absl::StrJoin(recipe.preload(), ",");
  facts["what was learned"] = recipe.kept();
  facts["umask"] = absl::StrCat(setup.umask());
  facts["nice"] = absl::StrCat(setup.nice());
  facts["oom_score_adj"] = absl::StrCat(setup.oom_score_adj());
  facts["the CPUs"] = absl::StrJoin(setup.cpus(), ",");
  for (const daemon::v1::Limit& limit : setup.limits()) {
    const auto resource = static_cast<size_t>(limit.resource());
    if (resource >= std::size(kLimits)) continue;
    facts[absl::StrCat("the limit of ", kLimits[resource])] =
        absl::StrCat(limit.soft(), " of ", limit.hard());
  }
  return facts;
}

ParkRecipe ParkRecipeOf(const daemon::v1::Recipe& recipe) {
  ParkRecipe park;
  park.argv = {recipe.argv().begin(), recipe.argv().end()};
  park.environment = {recipe.environment().begin(), recipe.environment().end()};
  park.varying = {recipe.varying().begin(), recipe.varying().end()};
  if (recipe.has_python_path()) park.python_path = recipe.python_path();
  park.preload = {recipe.preload().begin(), recipe.preload().end()};
  return park;
}

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
