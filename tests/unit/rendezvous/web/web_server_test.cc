#include "rendezvous/web/web_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers when `answer` is notified.
class SlowService final : public v1::Rendezvous::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    if (!asked.HasBeenNotified()) asked.Notify();
    answer.WaitForNotification();
    reply->set_release("0.1.0");
    if (has_job) reply->add_jobs()->set_run_id("job7");
    return grpc::Status::OK;
  }

  absl::Notification asked;
  absl::Notification answer;
  bool has_job = false;  // before the first is asked
};

class WebServerTest : public ::testing::Test {
 protected:
  WebServerTest() {
    signal(SIGPIPE, SIG_IGN);  // as the service
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  void Start(const std::string& password, std::optional<WebBounds> bounds = std::nullopt) {
    auto web = WebServer::Start({.listen = "127.0.0.1:0", .password = password, .bounds = bounds},
                                server_->InProcessChannel({}));
    ASSERT_TRUE(web.ok()) << web.status();
    web_ = *std::move(web);
  }

  // From 127.0.0.2, or the address of this machine that is given.
  void Connect(const Fd& fd, in_addr_t from = INADDR_LOOPBACK + 1) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(web_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  static Fd Socket() { return Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

  // Connections from 127.0.0.1 that say nothing. `before`: is called before the first connects.
  std::vector<Fd> Crowd(int count, const std::function<void()>& before = nullptr) const {
    std::vector<Fd> crowd;
    for (int i = 0; i < count; ++i) crowd.push_back(Socket());
    if (before) before();
    for (const Fd& fd : crowd) Connect(fd, INADDR_LOOPBACK);
    return crowd;
  }
  // How many haven't been ended.
  static size_t Kept(const std::vector<Fd>& crowd) {
    size_t kept = 0;
    for (const Fd& fd : crowd) {
      char byte = 0;
      kept += recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN ? 1 : 0;
    }
    return kept;
  }

  Fd Send(const std::string& path, const std::string& headers = "") {
    Fd fd = Socket();
    Connect(fd);
    EXPECT_TRUE(
        WriteAll(fd.get(), absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n"))
            .ok());
    return fd;
  }

  static std::string ReadAll(const Fd& fd) {
    std::string text;
    char bytes[4096];
    ssize_t n = 0;
    while ((n = read(fd.get(), bytes, sizeof(bytes))) > 0) text.append(bytes, n);
    return text;
  }

  std::string Get(const std::string& path, const std::string& headers = "") {
    return ReadAll(Send(path, headers));
  }

  // Asks again and again, as a browser or a monitor does.
  std::string GetUntilAnswered(const std::string& path) {
    std::string answer;
    for (int i = 0; i < 20 && answer.empty(); ++i) answer = Get(path);
    return answer;
  }

  static absl::Duration ProcessTime() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  }

  std::unique_ptr<rlimit> none_;
  SlowService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<WebServer> web_;
};

TEST_F(WebServerTest, WhoWaitsForTheServiceHoldsUpNobody) {
  Start("");
  const Fd first = Send("/metrics");
  service_.asked.WaitForNotification();
  const Fd second = Send("/healthz");
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/nothing"), StartsWith("HTTP/1.1 404"));
  Send("/api/v1/status").Reset();  // one that doesn't wait
  service_.answer.Notify();
  EXPECT_THAT(ReadAll(first), HasSubstr("ddprun_service_info"));
  EXPECT_THAT(ReadAll(second), HasSubstr("ok\n"));
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST_F(WebServerTest, WithAPasswordOnlyItsHealthIsForEverybody) {
  service_.answer.Notify();
  Start("geheim");
  for (const char* path : {"/", "/page.js", "/page.css", "/course.js", "/api/v1/status",
                           "/api/v1/curves", "/metrics", "/x"}) {
    const std::string refusal = Get(path);
    EXPECT_THAT(refusal, StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(refusal, HasSubstr("WWW-Authenticate: Basic"));
    EXPECT_THAT(refusal, Not(HasSubstr("ddprun_service")));
    EXPECT_THAT(Get(path, "Authorization: Bearer falsch\r\n"), StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(Get(path, "Authorization: Bearer geheim\r\n"), Not(StartsWith("HTTP/1.1 401")));
  }
  EXPECT_THAT(Get("/metrics", "Authorization: Basic dTpnZWhlaW0=\r\n"),  // u:geheim
              HasSubstr("ddprun_service_info"));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
}

// The clients of the crowd say nothing, or one byte now and then. Each can be evicted when it is a
// second old; the service, which has the same descriptors, has most of them.
TEST_F(WebServerTest, ACrowdKeepsThePageFromNobodyForLong) {
  service_.answer.Notify();
  Start("");
  const std::vector<Fd> crowd = Crowd(200);
  EXPECT_THAT(GetUntilAnswered("/healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(GetUntilAnswered("/metrics"), HasSubstr("ddprun_service_info"));
  EXPECT_LE(Kept(crowd), WebBounds().door.per_address) << "of one address";
}

TEST_F(WebServerTest, TwinWithoutBoundsAllAreKept) {
  service_.answer.Notify();
  Start("", WebBounds{.door = {.strangers = 1000, .per_address = 1000}});
  const std::vector<Fd> crowd = Crowd(200);
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Kept(crowd), crowd.size());
}

// evhttp ends a client that is silent for 5 s, but not one that sends a byte in each 5 s.
TEST_F(WebServerTest, ARequestHasAnAge) {
  Start("", WebBounds{.age = absl::Milliseconds(200)});
  const std::vector<Fd> slow = Crowd(1);
  ASSERT_TRUE(WriteAll(slow.front().get(), "GET / HT").ok());
  EXPECT_EQ(ReadAll(slow.front()), "");
}

TEST_F(WebServerTest, NorDoesAnAnswerTakeLonger) {
  Start("", WebBounds{.age = absl::Milliseconds(200)});
  const Fd waits = Send("/metrics");
  service_.asked.WaitForNotification();
  EXPECT_EQ(ReadAll(waits), "");
  service_.answer.Notify();
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 200"));
}

TEST_F(WebServerTest, WithoutDescriptorsItTriesAgainAFewTimesASecond) {
  service_.answer.Notify();
  Start("");
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 200"));
  const std::vector<Fd> waits = Crowd(1, [this] {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    none_ = std::make_unique<rlimit>(before);
    const rlimit lowered{.rlim_cur = 3, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lowered);
  });
  const absl::Duration began = ProcessTime();
  pollfd nothing{.fd = waits.front().get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&nothing, 1, 1000), 0) << "it is not accepted";
  EXPECT_LT(ProcessTime() - began, absl::Milliseconds(300)) << "a loop that never waits takes 1 s";
  setrlimit(RLIMIT_NOFILE, none_.get());
  ASSERT_TRUE(WriteAll(waits.front().get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n").ok());
  EXPECT_THAT(ReadAll(waits.front()), StartsWith("HTTP/1.1 200"));
}

// A page that is opened late has curves: the server looks by itself, and nobody waits for that.
TEST_F(WebServerTest, CurvesGoOnWhileNobodyLooks) {
  service_.has_job = true;
  Start("");
  service_.asked.WaitForNotification();  // without a request
  EXPECT_THAT(Get("/api/v1/curves"), HasSubstr(R"({"jobs":[]})")) << "they wait for no answer";
  service_.answer.Notify();
  std::string curves;
  while (curves.find("job7") == std::string::npos) curves = Get("/api/v1/curves");
  EXPECT_THAT(curves, HasSubstr(R"("latest":{"ms_ago":[)"));
}

TEST_F(WebServerTest, ItsEndWaitsForNoAnswer) {
  Start("");
  const Fd first = Send("/metrics");
  service_.asked.WaitForNotification();
  service_.answer.Notify();
  web_.reset();
}

}  // namespace
}  // namespace ddprun::rendezvous
