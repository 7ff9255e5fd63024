#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_

namespace ddprun::rendezvous {

// The files page.html, page.js and page.css of this folder.
extern const char* const kPageHtml;
extern const char* const kPageScript;
extern const char* const kPageStyle;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_PAGE_H_
