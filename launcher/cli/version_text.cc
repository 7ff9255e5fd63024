#include "launcher/cli/version_text.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/version.h"

namespace ddprun::launcher {

std::string VersionText(const BuildFacts& facts, const std::string& glibc) {
  return absl::StrCat("ddprun ", kVersion, "\n", "commit ", facts.commit, "\n", "needs glibc ",
                      glibc.empty() ? "(unknown)" : glibc, "\n", "tested with torch ", facts.torch,
                      "; the workers' store with ", facts.torch_oldest, " to ", facts.torch_newest,
                      "\n");
}

namespace {

using Release = std::pair<int, int>;  // {2, 28}

// "GLIBC_2.28" → {2, 28}; {0, 0} for another library's version.
Release ReleaseOf(absl::string_view name) {
  // Packed relocations (DT_RELR) need the dynamic linker of glibc 2.36.
  if (name == "GLIBC_ABI_DT_RELR") return {2, 36};
  if (!absl::ConsumePrefix(&name, "GLIBC_")) return {};
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(name, absl::MaxSplits('.', 1));
  Release release;
  if (!absl::SimpleAtoi(numbers.first, &release.first)) return {};
  const absl::string_view minor = numbers.second.substr(0, numbers.second.find('.'));
  if (!absl::SimpleAtoi(minor, &release.second)) return {};
  return release;
}

template <typename Entry>
const Entry* At(uintptr_t address) {
  return reinterpret_cast<const Entry*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// The program's versions are a list of libraries, each with a list of version names; the links are
// distances in bytes from an entry, 0 = the last one.
Release NewestOf(uintptr_t needed, const char* names) {
  Release newest;
  while (true) {
    const auto& library = *At<ElfW(Verneed)>(needed);
    uintptr_t place = needed + library.vn_aux;
    for (unsigned i = 0; i < library.vn_cnt; ++i) {
      const auto& version = *At<ElfW(Vernaux)>(place);
      newest = std::max(newest, ReleaseOf(names + version.vna_name));
      place += version.vna_next;
    }
    if (library.vn_next == 0) return newest;
    needed += library.vn_next;
  }
}

// The dynamic linker lists the program first. It makes some addresses of the dynamic section
// absolute, and leaves others relative to the load address.
int TakeProgram(dl_phdr_info* info, size_t /*size*/, void* newest) {
  const uintptr_t base = info->dlpi_addr;
  const auto absolute = [base](uintptr_t address) {
    return address < base ? address + base : address;
  };
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    uintptr_t needed = 0;
    uintptr_t names = 0;
    for (const auto* entry = At<ElfW(Dyn)>(base + info->dlpi_phdr[i].p_vaddr);
         entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_VERNEED) needed = absolute(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names = absolute(entry->d_un.d_ptr);
    }
    if (needed != 0 && names != 0)
      *static_cast<Release*>(newest) = NewestOf(needed, At<char>(names));
  }
  return 1;  // the libraries don't matter
}

}  // namespace

std::string NeededGlibc() {
  Release newest;
  dl_iterate_phdr(&TakeProgram, &newest);
  return newest == Release() ? "" : absl::StrCat(newest.first, ".", newest.second);
}

}  // namespace ddprun::launcher
