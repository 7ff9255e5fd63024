#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_

namespace ddprun::rendezvous {

// A file of the status page, and the path under which it is served.
struct PageFile {
  const char* path;
  const char* type;
  const char* text;
};

// page.html, as "/", and the files of this folder that it loads.
extern const PageFile kPageFiles[6];

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
