#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_

namespace ddprun::rendezvous {

// A file of the page, as its path asks for it.
struct PageFile {
  const char* path;
  const char* type;
  const char* text;
};

// page.html, as "/", and what it loads: the files of this folder.
extern const PageFile kPageFiles[6];

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
