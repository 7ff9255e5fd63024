// Memory for programs that run simulations, and nothing else: they have one thread, and make and
// forget some thousand small objects for each seed, of the same few sizes. An eighth of their time
// went into malloc(3). Not built with sanitizers, which want to see each object.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kGrain = 16;
constexpr size_t kLargest = 1024;
constexpr size_t kSpan = size_t{64} << 10;     // of objects of one size
constexpr size_t kReserved = size_t{4} << 30;  // addresses, not memory
constexpr size_t kSizes = kLargest / kGrain + 1;

struct Free {
  Free* next;
};

Free* free_objects[kSizes];
uint8_t size_of_span[kReserved / kSpan];  // in grains
char* begin = nullptr;
char* next_span = nullptr;

bool IsOurs(const void* object) {
  return begin != nullptr && static_cast<const char*>(object) >= begin &&
         static_cast<const char*>(object) < begin + kReserved;
}

void* Reserve() {
  void* const found = mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

// Null: there are no addresses left.
Free* MoreOf(size_t grains) {
  if (begin == nullptr) begin = next_span = static_cast<char*>(Reserve());
  if (begin == nullptr || next_span == begin + kReserved) return nullptr;
  char* const span = next_span;
  next_span += kSpan;
  size_of_span[static_cast<size_t>(span - begin) / kSpan] = static_cast<uint8_t>(grains);
  Free* first = nullptr;
  for (size_t at = kSpan / (grains * kGrain); at-- > 0;) {
    first = new (span + at * grains * kGrain) Free{first};
  }
  return first;
}

void* Get(size_t size) {
  const size_t grains = (size + kGrain - 1) / kGrain + (size == 0 ? 1 : 0);
  if (grains < kSizes) {
    Free*& first = free_objects[grains];
    if (first == nullptr) first = MoreOf(grains);
    if (first != nullptr) {
      Free* const object = first;
      first = object->next;
      return object;
    }
  }
  void* const object = std::malloc(size);
  if (object == nullptr) std::abort();
  return object;
}

void Put(void* object) {
  if (!IsOurs(object)) return std::free(object);
  const auto span = static_cast<size_t>(static_cast<char*>(object) - begin) / kSpan;
  Free*& first = free_objects[size_of_span[span]];
  first = new (object) Free{first};
}

}  // namespace

void* operator new(size_t size) { return Get(size); }
void operator delete(void* object) noexcept { Put(object); }
void operator delete(void* object, size_t /*size*/) noexcept { Put(object); }
