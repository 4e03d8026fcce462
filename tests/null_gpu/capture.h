// Stream captures and graphs.
#pragma once

#include "null_gpu/machine.h"

namespace null_gpu {

/// Progress of a capture's streams: the number of nodes captured so far on each.
using Progress = std::map<const Stream*, size_t>;
struct Mark {
  Capture* capture = nullptr;
  unsigned long long number = 0;
  Progress before;
};

void capture_work(Stream& stream, const char* kernel);
void capture_operation(Stream& stream, Operation operation);
std::shared_ptr<Mark> mark_of(Stream& stream);
/// The stream waits for a captured event and joins the capture. Returns false if the event belongs
/// to another capture.
bool join_capture(Stream& stream, const Mark& mark);
void spoil(Capture& capture);

}  // namespace null_gpu
