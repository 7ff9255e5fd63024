#include "launcher/stores/tcp_store_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

// Commands of the protocol; see tests/support/tcp_store_bytes.h for all of them.
constexpr char kStoreValidate = 0;
constexpr char kStoreSet = 1;
constexpr char kStoreGet = 3;
constexpr char kStoreWait = 6;
constexpr char kStorePing = 13;
constexpr uint64_t kMagic = 0x3C85F7CE;
constexpr char kStopWaiting = 0;
constexpr size_t kValueMax = 1 << 20;
constexpr char kStore[] = "the store at MASTER_ADDR";  // in errors

std::string StoreNumber(uint64_t number, size_t bytes = 8) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

std::string StoreText(absl::string_view text) {
  return absl::StrCat(StoreNumber(text.size()), text);
}

std::string StoreValidation() {
  return absl::StrCat(std::string(1, kStoreValidate), StoreNumber(kMagic, 4));
}

absl::StatusOr<Fd> ConnectTo(const addrinfo& address, Instant deadline) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, "connect to the store");
  }
  DDPRUN_RETURN_IF_ERROR(AwaitReady(socket.get(), POLLOUT, deadline, kStore));
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return ErrnoStatus(error, "connect to the store");
  return socket;
}

}  // namespace

TcpStoreClient::TcpStoreClient(Fd socket, Instant deadline)
    : socket_(std::move(socket)), deadline_(deadline) {}

absl::StatusOr<TcpStoreClient> TcpStoreClient::Connect(const std::string& host, uint16_t port,
                                                       Instant deadline) {
  DDPRUN_ASSIGN_OR_RETURN(const AddressList list, LookUp(host, port));
  absl::Status why = absl::UnavailableError("no address");
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    absl::StatusOr<Fd> socket = ConnectTo(*entry, deadline);
    why = socket.status();
    if (!socket.ok()) continue;
    TcpStoreClient client(*std::move(socket), deadline);
    DDPRUN_RETURN_IF_ERROR(client.Send(StoreValidation()));
    return client;
  }
  return absl::UnavailableError(absl::StrCat("'", host, "' port ", port, ": ", why.message()));
}

std::string TcpStoreClient::Greeting(uint32_t nonce) {
  return absl::StrCat(StoreValidation(), std::string(1, kStorePing), StoreNumber(nonce, 4));
}

absl::Status TcpStoreClient::Send(absl::string_view bytes) {
  return SendAll(socket_.get(), bytes, deadline_, kStore);
}

absl::StatusOr<std::string> TcpStoreClient::Receive(size_t size) {
  return ReceiveAll(socket_.get(), size, deadline_, kStore);
}

absl::Status TcpStoreClient::Set(absl::string_view key, absl::string_view value) {
  return Send(absl::StrCat(std::string(1, kStoreSet), StoreText(key), StoreText(value)));
}

absl::StatusOr<std::string> TcpStoreClient::WaitAndGet(absl::string_view key) {
  DDPRUN_RETURN_IF_ERROR(
      Send(absl::StrCat(std::string(1, kStoreWait), StoreNumber(1), StoreText(key))));
  DDPRUN_ASSIGN_OR_RETURN(const std::string answer, Receive(1));
  if (answer[0] != kStopWaiting) return absl::InternalError("no answer of a store to WAIT");
  DDPRUN_RETURN_IF_ERROR(Send(absl::StrCat(std::string(1, kStoreGet), StoreText(key))));
  DDPRUN_ASSIGN_OR_RETURN(const std::string length, Receive(sizeof(uint64_t)));
  uint64_t size = 0;
  for (size_t i = length.size(); i > 0; --i) {
    size = size << 8 | static_cast<unsigned char>(length[i - 1]);
  }
  if (size > kValueMax) return absl::InternalError("a value of the store is too long");
  return Receive(size);
}

}  // namespace ddprun::launcher
