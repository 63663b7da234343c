#include "backends/device/recordings.h"

#include <algorithm>
#include <utility>

namespace mithril::device {

Recordings::Entry& Recordings::at(Addresses addresses) {
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& entry) { return entry.addresses == addresses; });
  if (found == entries_.end()) {
    if (entries_.size() == kMost) entries_.pop_back();
    entries_.push_back({std::move(addresses), nullptr});
    found = entries_.end() - 1;
  } else {
    found->is_new = false;
  }
  std::rotate(entries_.begin(), found, found + 1);
  return entries_.front();
}

void Recordings::give_up() {
  has_given_up_ = true;
  entries_.clear();
}

}  // namespace mithril::device
