#include "rendezvous/web/web_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/fd.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers when it is told to.
class SlowService final : public v1::Rendezvous::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    if (!asked.HasBeenNotified()) asked.Notify();
    answer.WaitForNotification();
    reply->set_release("0.1.0");
    return grpc::Status::OK;
  }

  absl::Notification asked;
  absl::Notification answer;
};

class WebServerTest : public ::testing::Test {
 protected:
  WebServerTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  void Start(const std::string& password) {
    auto web = WebServer::Start({.listen = "127.0.0.1:0", .password = password},
                                server_->InProcessChannel({}));
    ASSERT_TRUE(web.ok()) << web.status();
    web_ = *std::move(web);
  }

  Fd Send(const std::string& path, const std::string& headers = "") {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(web_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
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
  for (const char* path : {"/", "/page.js", "/page.css", "/api/v1/status", "/metrics", "/x"}) {
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

TEST_F(WebServerTest, ItsEndWaitsForNoAnswer) {
  Start("");
  const Fd first = Send("/metrics");
  service_.asked.WaitForNotification();
  service_.answer.Notify();
  web_.reset();
}

}  // namespace
}  // namespace ddprun::rendezvous
