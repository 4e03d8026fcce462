// Entry point without libFuzzer: reads each named file once, in order. Options of libFuzzer, which
// start with -, are ignored; ASan limits the size of allocations (tools/fuzz.py).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int count, char** words) {
  int read = 0;
  for (int i = 1; i < count; ++i) {
    if (words[i][0] == '-') {
      continue;
    }
    std::ifstream file(words[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", words[i]);
      return 2;
    }
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::fprintf(stderr, "reading %s, %zu bytes\n", words[i], bytes.size());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++read;
  }
  if (read == 0) {  // as libFuzzer does at startup; reports an unknown parser name
    LLVMFuzzerTestOneInput(nullptr, 0);
  }
  std::fprintf(stderr, "stat::number_of_executed_units: %d\n", read);
}
