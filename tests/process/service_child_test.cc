// The rendezvous service of an agent, killed and started again: real processes, and the addresses
// that they listen on.
#include "launcher/service/service_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/process/process_testing.h"
#include "tests/support/slow.h"

namespace ddprun::launcher {
namespace {

using ::ddprun::testing::DiesWithin;
using ::ddprun::testing::kPatience;
using ::testing::HasSubstr;

void Kill(pid_t pid, int number = SIGKILL) {
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_EQ(syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0), 0);
}

// Whether somebody listens at this port of 127.0.0.1, and holds it alone.
bool IsTaken(int port) {
  return !rendezvous::CheckListenable(absl::StrCat("127.0.0.1:", port)).ok();
}

class ServiceChildTest : public ::testing::Test {
 protected:
  void Start(const std::string& listen = "127.0.0.1:0", absl::Duration loss = absl::Seconds(10)) {
    child_ = *ServiceChild::Fork({});
    loop_ = *EventLoop::Create();
    child_->Serve(
        loop_.get(), {.listen = listen, .only_run_id = "job"}, loss,
        {.on_ready = [this](absl::StatusOr<int> port) { Note([&] { ready_ = std::move(port); }); },
         .on_trouble =
             [this](const std::string& text) { Note([&] { troubles_.push_back(text); }); },
         .on_restarted =
             [this](const ServiceChild::Restarted& restarted) {
               Note([&] { restarted_.push_back(restarted); });
             },
         .on_exit = [this](const std::string& how) { Note([&] { exit_ = how; }); }},
        deaths_window_);
    ASSERT_TRUE(Until([this] { return ready_.has_value(); }));
    ASSERT_TRUE(ready_->ok()) << ready_->status();
  }
  template <typename What>
  void Note(const What& what) {
    what();
    if (done_ && done_()) loop_->Stop();
  }
  // Runs the loop until `done`; false after kPatience.
  bool Until(const std::function<bool()>& done) {
    if (done()) return true;
    done_ = done;
    Timer limit(loop_.get(), [this] { loop_->Stop(); });
    limit.Arm(loop_->Now() + kPatience);
    loop_->Run();
    done_ = nullptr;
    return done();
  }
  bool UntilRestarted(size_t times) {
    return Until([this, times] { return restarted_.size() >= times || exit_.has_value(); }) &&
           restarted_.size() == times;
  }

  // Kills the service, and listens at its port before it is started again.
  Fd KillAndTakePort() {
    Kill(child_->pid());
    EXPECT_TRUE(DiesWithin(child_->pid()));
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    sockaddr_in address = Address();
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }
  sockaddr_in Address() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(**ready_));
    return address;
  }

  // Six starts take longer under sanitizers on a busy machine.
  const absl::Duration deaths_window_ = ServiceRestarts::kDeathsWindow * Slow();
  std::unique_ptr<EventLoop> loop_;
  std::optional<absl::StatusOr<int>> ready_;
  std::vector<std::string> troubles_;
  std::vector<ServiceChild::Restarted> restarted_;
  std::optional<std::string> exit_;
  std::function<bool()> done_;
  std::unique_ptr<ServiceChild> child_;
};

TEST_F(ServiceChildTest, AKilledServiceIsBackAtTheSamePort) {
  Start();
  const int port = **ready_;
  const pid_t first = child_->pid();
  Kill(first);
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
  EXPECT_TRUE(IsTaken(port));
  EXPECT_EQ(restarted_[0].how, "was killed by SIGKILL");
  EXPECT_EQ(restarted_[0].pid, child_->pid());
  EXPECT_NE(child_->pid(), first);
  EXPECT_EQ(restarted_[0].times, 1U);
  EXPECT_LT(restarted_[0].missing, absl::Seconds(4) * Slow());
  RecordProperty("missing_ms", static_cast<int>(absl::ToInt64Milliseconds(restarted_[0].missing)));
}

TEST_F(ServiceChildTest, ConnectionsThatLingerAreNoObstacle) {
  Start();
  sockaddr_in address = Address();
  std::vector<Fd> connections;
  for (int i = 0; i < 20; ++i) {
    connections.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        connect(connections.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
  }
  Kill(child_->pid());
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
  EXPECT_TRUE(troubles_.empty()) << troubles_[0];
}

TEST_F(ServiceChildTest, SoIsASocketThatADeadOneLeft) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/service.", getpid());
  Start(absl::StrCat("unix:", path));
  Kill(child_->pid());
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
  EXPECT_FALSE(rendezvous::CheckListenable(absl::StrCat("unix:", path)).ok()) << "it serves there";
  child_.reset();
  unlink(path.c_str());
}

TEST_F(ServiceChildTest, TheSixthDeathInARowIsTheLast) {
  Start();
  for (size_t times = 1; times <= ServiceRestarts::kDeathsMax; ++times) {
    Kill(child_->pid());
    ASSERT_TRUE(UntilRestarted(times)) << exit_.value_or("");
    EXPECT_EQ(restarted_.back().times, times);
  }
  Kill(child_->pid());
  ASSERT_TRUE(Until([this] { return exit_.has_value(); }));
  EXPECT_EQ(*exit_,
            absl::StrCat("was killed by SIGKILL, for the 6th time within ",
                         absl::FormatDuration(deaths_window_), ", and is not started again"));
}

TEST_F(ServiceChildTest, APortThatAnotherProcessTookIsNamedAndTriedAgain) {
  Start();
  const int port = **ready_;
  const Fd held = KillAndTakePort();
  ASSERT_TRUE(Until([this] { return !troubles_.empty() || exit_.has_value(); }));
  ASSERT_FALSE(troubles_.empty()) << *exit_;
  EXPECT_THAT(troubles_[0], HasSubstr(absl::StrCat("127.0.0.1:", port)));
  EXPECT_THAT(troubles_[0], HasSubstr("another job or service holds that port"));
  shutdown(held.get(), SHUT_RDWR);  // it listens no more
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
}

TEST_F(ServiceChildTest, AndGivenUpWhenTheLossTimeoutIsOver) {
  Start("127.0.0.1:0", absl::Milliseconds(300));
  const Fd held = KillAndTakePort();
  ASSERT_TRUE(Until([this] { return exit_.has_value(); }));
  EXPECT_THAT(*exit_, HasSubstr("was killed by SIGKILL and could not be started again within "
                                "300ms (--service_loss_timeout): cannot listen on 127.0.0.1:"));
}

// Executed in place of a service: announces that it serves, then prints the lines of this variable.
constexpr char kWords[] = "DDPRUN_TEST_SERVICE_WORDS";

// After a service has sent decisions that its record doesn't have, a new one would decide them
// again, perhaps differently.
TEST_F(ServiceChildTest, NoneIsStartedFromARecordOfThePast) {
  for (const bool stale : {true, false}) {
    setenv(kWords, stale ? "ok 7 0\nstale it is of the past\n" : "ok 7 0\n", /*replace=*/1);
    restarted_.clear();
    exit_.reset();
    ready_.reset();
    Start();
    Kill(child_->pid());
    ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
    Kill(child_->pid());
    ASSERT_EQ(UntilRestarted(2), !stale) << exit_.value_or("");
    if (stale) {
      EXPECT_EQ(*exit_, "was killed by SIGKILL and is not started again: it is of the past");
    }
  }
  unsetenv(kWords);
}

TEST_F(ServiceChildTest, NobodyWantsOneAfterTheEnd) {
  Start();
  child_->StartNoMore();
  EXPECT_FALSE(exit_.has_value()) << "it goes on serving";
  Kill(child_->pid());
  ASSERT_TRUE(Until([this] { return exit_.has_value(); }));
  EXPECT_EQ(*exit_, "was killed by SIGKILL");
  EXPECT_TRUE(restarted_.empty());
}

TEST_F(ServiceChildTest, SignalsToTheGroupDoNotEndIt) {
  Start();
  Kill(child_->pid());
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
    Kill(child_->pid(), number);
  }
  EXPECT_TRUE(IsTaken(**ready_));
  EXPECT_FALSE(DiesWithin(child_->pid(), absl::Milliseconds(50)));
}

TEST_F(ServiceChildTest, ItHoldsNothingOfItsAgent) {
  Start();
  FdPair pipe = *MakePipe();
  FdPair open;  // as a library's: without close-on-exec
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  open.first.Reset(fds[0]);
  open.second.Reset(fds[1]);
  Kill(child_->pid());
  ASSERT_TRUE(UntilRestarted(1)) << exit_.value_or("");
  for (Fd* writer : {&pipe.second, &open.second}) writer->Reset();
  char byte = 0;
  EXPECT_EQ(read(pipe.first.get(), &byte, 1), 0) << "else somebody holds the other end";
  EXPECT_EQ(read(open.first.get(), &byte, 1), 0);
}

// An agent that is killed says nothing to its service; the end of the pipe does.
TEST_F(ServiceChildTest, ItEndsWithItsAgent) {
  FdPair told = *MakePipe();
  const pid_t agent = fork();
  if (agent == 0) {
    Start();
    Kill(child_->pid());
    if (!UntilRestarted(1)) _exit(1);
    const pid_t service = child_->pid();
    if (write(told.second.get(), &service, sizeof(service)) < 0) _exit(1);
    loop_->Run();
    _exit(1);
  }
  told.second.Reset();
  pid_t service = 0;
  ASSERT_EQ(read(told.first.get(), &service, sizeof(service)),
            static_cast<ssize_t>(sizeof(service)));
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, service, 0)));
  ASSERT_TRUE(pidfd.valid());
  Kill(agent);
  EXPECT_TRUE(DiesWithin(agent));
  EXPECT_TRUE(DiesWithin(service));
}

}  // namespace
}  // namespace ddprun::launcher

int main(int argc, char** argv) {
  if (argc == 2 && ddprun::launcher::kServiceCommand == argv[1]) {
    if (const char* words = getenv(ddprun::launcher::kWords)) {
      if (write(STDOUT_FILENO, words, strlen(words)) < 0) _exit(1);
      while (read(STDIN_FILENO, argv[0], 1) > 0) {
      }
      _exit(0);
    }
    ddprun::launcher::RunServiceCommand();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
