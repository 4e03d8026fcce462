// Builds trees of shared prefixes.
#include "data/token_tree.h"

#include <algorithm>
#include <numeric>

namespace lockstep::data {
namespace {

size_t tokens_alike(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Sorts the texts by tokens, so that texts with long common prefixes are adjacent.
std::vector<size_t> sorted(std::span<const JudgedText> texts, std::span<const size_t> members) {
  std::vector<size_t> order(members.begin(), members.end());
  std::ranges::stable_sort(order, {}, [&](size_t i) -> const auto& { return texts[i].ids; });
  return order;
}

}  // namespace

TokenTree tree_of(std::span<const JudgedText> texts, std::span<const size_t> members) {
  TokenTree tree;
  std::vector<std::vector<int64_t>> paths(texts.size());
  std::vector<int64_t> path;  // path of the previous text
  const auto leave = [&](size_t kept) {
    for (; path.size() > kept; path.pop_back()) {
      tree.seen_until[static_cast<size_t>(path.back())] = std::ssize(tree.ids);
    }
  };
  const std::vector<int64_t> none;
  const std::vector<int64_t>* before = &none;
  for (const size_t i : sorted(texts, members)) {
    const std::vector<int64_t>& ids = texts[i].ids;
    leave(tokens_alike(*before, ids));
    while (path.size() < ids.size()) {
      const size_t position = path.size();
      tree.parents.push_back(path.empty() ? -1 : path.back());
      path.push_back(std::ssize(tree.ids));
      tree.ids.push_back(ids[position]);
      tree.positions.push_back(static_cast<int64_t>(position));
      tree.seen_until.push_back(0);
    }
    paths[i] = path;
    before = &ids;
  }
  leave(0);
  for (const size_t i : members) {
    tree.paths.push_back(paths[i]);
  }
  return tree;
}

std::vector<std::vector<size_t>> alike(std::span<const JudgedText> texts, int64_t most) {
  std::vector<size_t> all(texts.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<size_t>> groups;
  int64_t tokens = 0;  // tokens in the last group's tree
  const std::vector<int64_t>* before = nullptr;
  for (const size_t i : sorted(texts, all)) {
    const std::vector<int64_t>& ids = texts[i].ids;
    const size_t shared = before == nullptr ? 0 : tokens_alike(*before, ids);
    const int64_t added = std::ssize(ids) - static_cast<int64_t>(shared);
    if (before != nullptr && shared > 0 && 2 * shared >= texts[i].begin && tokens + added <= most) {
      groups.back().push_back(i);
      tokens += added;
    } else {
      groups.push_back({i});
      tokens = std::ssize(ids);
    }
    before = &ids;
  }
  return groups;
}

}  // namespace lockstep::data
