// A worker that goes on in the next generation as the same process, as docs/PROTOCOL.md has it
// (R3):
//
//   rejoin_worker JOURNAL [plain[=RANK] | stubborn[=RANK] | child | parks | observes]…
//
// The worker prints its place to stdout, at its start and for each generation that it rejoins, and
// then writes a line into the journal as worker.py does: a test that has read that line may end it.
// `plain`: the worker (or the one that starts with this rank) asks for nothing. `stubborn`: it
// learns that its generation is over, and doesn't release it. `child`: it has a child process,
// named in its line. `parks`: it reports to its agent that it can be started ahead. `observes`: its
// lines have all that it sees of how it was started. SIGUSR1 ends it with 0, SIGUSR2 with 3.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "tests/support/observation.h"
#include "worker/env/parked_program.h"

namespace {

namespace v1 = ddprun::agent::v1;

uint64_t Number(const char* name) { return std::strtoull(std::getenv(name), nullptr, 10); }

class Worker {
 public:
  Worker(std::string journal, std::vector<std::string> wishes, nlohmann::json seen)
      : journal_(std::move(journal)),
        wishes_(std::move(wishes)),
        seen_(std::move(seen)),
        stub_(v1::Agent::NewStub(
            grpc::CreateChannel(absl::StrCat("unix:", std::getenv("DDPRUN_AGENT")),
                                grpc::InsecureChannelCredentials()))) {
    place_.set_generation(Number("DDPRUN_GENERATION"));
    place_.set_rank(static_cast<uint32_t>(Number("RANK")));
    place_.set_local_rank(static_cast<uint32_t>(Number("LOCAL_RANK")));
    place_.set_world_size(static_cast<uint32_t>(Number("WORLD_SIZE")));
    place_.set_restart_count(static_cast<uint32_t>(Number("TORCHELASTIC_RESTART_COUNT")));
  }

  int Run() {
    if (Wants("child")) child_ = Fork();
    if (Wants("parks") && !Ask(0)) return 1;
    for (;;) {
      std::printf("rank %u in generation %llu\n", place_.rank(),
                  static_cast<unsigned long long>(place_.generation()));
      std::fflush(stdout);
      Write("worker", {{"generation", place_.generation()},
                       {"rank", place_.rank()},
                       {"world", place_.world_size()},
                       {"restart_count", place_.restart_count()},
                       {"child", child_},
                       {"seen", seen_}});
      if (Wants("plain") || Wants(absl::StrCat("plain=", place_.rank()).c_str())) Stay();
      v1::GenerationEnd end;
      if (const grpc::Status status = Await(&end); !status.ok()) {
        Write("refused", {{"code", status.error_code()}, {"why", status.error_message()}});
        Stay();
      }
      Write("over", {{"generation", place_.generation()}, {"why", end.why()}});
      if (Wants("stubborn") || Wants(absl::StrCat("stubborn=", place_.rank()).c_str())) Stay();
      if (!Ask(place_.generation())) return 1;
    }
  }

 private:
  bool Wants(const char* wish) const {
    return std::find(wishes_.begin(), wishes_.end(), wish) != wishes_.end();
  }

  [[noreturn]] static void Stay() {
    for (;;) pause();
  }

  static pid_t Fork() {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    Stay();
  }

  grpc::Status Await(v1::GenerationEnd* end) {
    grpc::ClientContext context;
    v1::AwaitGenerationEndRequest request;
    request.set_local_rank(place_.local_rank());
    request.set_generation(place_.generation());
    return stub_->AwaitGenerationEnd(&context, request, end);
  }

  // For the place after that generation. False: there is none any more.
  bool Ask(uint64_t after_generation) {
    v1::GetAssignmentRequest request;
    request.set_local_rank(place_.local_rank());
    request.set_after_generation(after_generation);
    request.set_can_park(Wants("parks") && ddprun::worker::CanPark());
    request.set_timeout_ms(1000);
    for (;;) {
      grpc::ClientContext context;
      const grpc::Status status = stub_->GetAssignment(&context, request, &place_);
      if (status.ok()) return true;
      if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return false;
    }
  }

  // In one piece: others write to the same file.
  void Write(const char* event, nlohmann::json fields) const {
    fields["t"] = static_cast<double>(ddprun::MonotonicNow().nanoseconds()) / 1e9;
    fields["pid"] = getpid();
    fields["who"] = "worker";
    fields["event"] = event;
    const std::string line = fields.dump() + "\n";
    const int fd = open(journal_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) abort();
    close(fd);
  }

  const std::string journal_;
  const std::vector<std::string> wishes_;
  const nlohmann::json seen_;  // null = nobody wants to know
  std::unique_ptr<v1::Agent::Stub> stub_;
  v1::WorkerAssignment place_;
  pid_t child_ = 0;
};

}  // namespace

int main(int argc, char** argv, char** environment) {
  if (argc < 2) return 2;
  const std::vector<std::string> wishes(argv + 2, argv + argc);
  nlohmann::json seen;
  if (std::find(wishes.begin(), wishes.end(), "observes") != wishes.end()) {
    seen = ddprun::testing::Observe(argv, environment);
  }
  signal(SIGUSR1, [](int) { _exit(0); });
  signal(SIGUSR2, [](int) { _exit(3); });
  return Worker(argv[1], wishes, std::move(seen)).Run();
}
