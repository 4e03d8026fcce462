// Builds a trie over token bytes level by level from sorted tokens.
#include "text/models/token_trie.h"

#include <algorithm>

namespace lockstep::text {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  // Tokens below a node: a contiguous range of the sorted list with a common prefix of `depth`
  // bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, tokens.size(), 0}};
  for (Node node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && tokens[begin].first.size() == depth) {
      nodes_[node].id = tokens[begin].second;
      ++begin;
    }
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      size_t after = begin;
      while (after < end && tokens[after].first[depth] == byte) {
        ++after;
      }
      Entry entry;
      entry.label = static_cast<uint8_t>(byte);
      nodes_.push_back(entry);
      ranges.push_back({begin, after, depth + 1});
      ++nodes_[node].count;
      begin = after;
    }
  }
  const Entry root = nodes_[kRoot];
  for (uint32_t i = root.children; i < root.children + root.count; ++i) {
    first_[nodes_[i].label] = i;
  }
}

TokenTrie::Node TokenTrie::walk(std::string_view text) const {
  Node node = kRoot;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == kNone) {
      return kNone;
    }
  }
  return node;
}

}  // namespace lockstep::text
