#include "rendezvous/server/serve.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/server/rendezvous_server.h"
#include "rendezvous/web/web_server.h"

namespace ddprun::rendezvous {
namespace {

// A line of ServeConfig.ready_fd.
void TellAgent(const ServeConfig& config, absl::string_view word, absl::string_view text) {
  const std::string line = absl::StrCat(word, " ", absl::StrReplaceAll(text, {{"\n", " "}}), "\n");
  WriteAll(config.ready_fd, line).IgnoreError();  // an agent that is gone is seen by life_fd
}

void TellReady(const ServeConfig& config, const absl::StatusOr<int>& port) {
  if (config.ready_fd >= 0) {
    if (port.ok()) return TellAgent(config, "ok", absl::StrCat(*port));
    const bool taken = absl::IsUnavailable(port.status());
    return TellAgent(config, taken ? "taken" : "error", port.status().message());
  }
  if (port.ok()) {
    Tell(absl::StrCat("rendezvous service on ", config.listen, *port == 0 ? "" : ", port ",
                      *port == 0 ? "" : absl::StrCat(*port), "; Ctrl-C ends it"));
  } else {
    Tell(absl::StrCat("error: ", port.status().message()));
  }
}

// Ends the loop when the agent's end of the pipe closes. What else comes in is not for us.
std::unique_ptr<FdWatch> WatchLife(EventLoop* loop, int life_fd, bool* agent_gone) {
  return std::make_unique<FdWatch>(loop, life_fd, [loop, life_fd, agent_gone] {
    char bytes[64];
    const ssize_t n = read(life_fd, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
    *agent_gone = true;
    loop->Stop();
  });
}

absl::StatusOr<EventLog> OpenEvents(const ServeConfig& config) {
  if (config.event_log.empty()) return EventLog();
  return EventLog::Open(config.event_log, "service");
}

// As ParseStatusPage gives them; a name that is this machine's alone is worth a warning too many.
bool IsLoopbackName(absl::string_view host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

// A job doesn't fail for want of a page to watch it on.
std::unique_ptr<WebServer> ShowStatusPage(const ServeConfig& config, EventLog& events, Instant now,
                                          RendezvousServer& server) {
  if (config.status_page.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<WebServer>> page = WebServer::Start(
      {.listen = config.status_page, .token = config.token, .password = config.status_page_token},
      server.InProcessChannel());
  if (!page.ok()) {
    Tell(absl::StrCat("warning: ", page.status().message()));
    return nullptr;
  }
  const std::string host = config.status_page.substr(0, config.status_page.rfind(':'));
  const std::string url = absl::StrCat("http://", host, ":", (*page)->port(), "/");
  Tell(absl::StrCat("status page on ", url, " (metrics: ", url, "metrics)"));
  if (config.status_page_token.empty() && !IsLoopbackName(host)) {
    Tell(absl::StrCat("warning: whoever reaches ", url, " reads of the jobs there: ",
                      "--status_page_token_file gives the page a password"));
  }
  events.Write(now, "status_page", {{"url", url}});
  return *std::move(page);
}

// What a former service has left in the folder, and where this one leaves it. Without the folder
// that the user named nothing is served, nor without what a job that goes on is to be taken up
// from; for want of another one no job fails.
absl::Status OpenJournal(const ServeConfig& config, EventLoop* loop, EtcdSeat* seat,
                         ServerOptions& options) {
  if (seat != nullptr) {
    options.journal = seat->journal();
    options.kept = seat->kept();
    options.first_term = Term(static_cast<uint64_t>(config.etcd->revision));
    return absl::OkStatus();
  }
  if (config.state_dir.empty()) return absl::OkStatus();
  const bool wanted = config.state_outlives_machine || config.again;
  absl::StatusOr<std::unique_ptr<SqliteJournal>> journal = SqliteJournal::Open(
      loop, config.state_dir, {.outlives_machine = config.state_outlives_machine});
  absl::StatusOr<std::vector<KeptJob>> kept;
  if (journal.ok()) kept = (*journal)->Load();
  const absl::Status status = journal.ok() ? kept.status() : journal.status();
  if (!status.ok()) {
    if (wanted) return status;
    Tell(absl::StrCat("warning: ", status.message(),
                      ". The job goes on, but it ends if its rendezvous service does"));
    return absl::OkStatus();
  }
  options.journal = *std::move(journal);
  options.kept = *std::move(kept);
  return absl::OkStatus();
}

// `lost`: gets why the leadership ended; the loop ends then.
absl::Status TakeSeat(const ServeConfig& config, EventLoop* loop, absl::Status* lost,
                      std::unique_ptr<EtcdSeat>& seat) {
  if (!config.etcd.has_value()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(seat, EtcdSeat::Take(loop, *config.etcd, [loop, lost](absl::Status why) {
                            *lost = std::move(why);
                            loop->Stop();
                          }));
  return absl::OkStatus();
}

}  // namespace

int ServeMain(const ServeConfig& config) {
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();  // each agent has two or three connections
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  absl::StatusOr<EventLog> events = OpenEvents(config);
  if (!loop.ok() || !events.ok()) {
    TellReady(config, loop.ok() ? events.status() : loop.status());
    return 1;
  }
  ServerOptions options;
  options.listen = config.listen;
  options.token = config.token;
  options.tls = config.tls;
  options.only_run_id = config.only_run_id;
  options.on_only_job_ended = [&loop] { (*loop)->Stop(); };
  options.on_record_stale = [&config](const std::string& why) {
    if (config.ready_fd >= 0) TellAgent(config, "stale", why);
  };
  absl::Status lost;
  std::unique_ptr<EtcdSeat> seat;
  if (absl::Status status = TakeSeat(config, loop->get(), &lost, seat); !status.ok()) {
    TellReady(config, status);
    return 1;
  }
  if (absl::Status status = OpenJournal(config, loop->get(), seat.get(), options); !status.ok()) {
    TellReady(config, status);
    return 1;
  }
  absl::StatusOr<std::unique_ptr<RendezvousServer>> server =
      RendezvousServer::Start(loop->get(), &*events, std::move(options));
  if (!server.ok()) {
    TellReady(config, server.status());
    return 1;
  }
  if (seat != nullptr) {
    if (absl::Status status = seat->Publish((*server)->port()); !status.ok()) {
      TellReady(config, status);
      return 1;
    }
  }
  std::unique_ptr<FdWatch> life;
  bool agent_gone = false;
  std::vector<std::unique_ptr<SignalWatch>> signals;
  if (config.life_fd >= 0) {
    life = WatchLife(loop->get(), config.life_fd, &agent_gone);
  } else {
    for (const int number : {SIGINT, SIGTERM}) {
      signals.push_back(
          std::make_unique<SignalWatch>(loop->get(), number, [&loop] { (*loop)->Stop(); }));
    }
  }
  const std::unique_ptr<WebServer> page = ShowStatusPage(config, *events, (*loop)->Now(), **server);
  TellReady(config, (*server)->port());
  (*loop)->Run();
  (*server)->Shutdown();
  if (seat != nullptr) seat->Leave(/*node_lives=*/!agent_gone);
  if (lost.ok()) return 0;
  Log(LogLevel::kWarning, absl::StrCat("the rendezvous service ends: ", lost.message()));
  return kLeadershipLost;
}

}  // namespace ddprun::rendezvous
