/* What a simulator in C would do with the library; ends with status 1 at the first wrong answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windtunnel_routing.h"

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);  \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

/* Two tiers: 4 leaves of 4 hosts under 2 spines. */
static const char *FABRIC =
    "shape: clos\n"
    "hosts: 16\n"
    "host: {gpus: 1, nics: 1}\n"
    "tiers:\n"
    "  - {ports_down: 4, oversubscription: 2, rate: 100 Gbps, length: 2 m}\n"
    "  - {ports_down: 4, rate: 100 Gbps, length: 20 m}\n";

/* Walks from NIC to NIC switch by switch and compares with wt_path; returns the number of links. */
static int walk(wt_routing *r, uint32_t src, uint32_t dst, uint64_t hash) {
  uint32_t links[16], at, port, link, state, count = 0;
  int planned = wt_path(r, src, dst, hash, links, 16);
  int plane = wt_plane(r, src, dst, hash);
  CHECK(plane == 0 && planned > 0 && planned <= 16);
  CHECK(wt_nic_link(r, src, plane, &link) == WT_OK && link == links[count++]);
  CHECK(wt_attachment(r, src, plane, &at, &port) == WT_OK);
  state = wt_enter(r, at, dst, plane, hash, NULL);
  for (;;) {
    uint32_t ports[64], same = state;
    int equal = wt_equal_cost(r, at, dst, plane, &same, ports, 64), i = 0;
    CHECK(wt_next_hop(r, at, dst, plane, hash, &state, &port) >= 0);
    while (i < equal && ports[i] != port) i++;
    CHECK(i < equal);
    CHECK(wt_out_link(r, at, port, &link) == WT_OK && link == links[count++]);
    wt_peer_t peer;
    CHECK(wt_peer(r, at, port, &peer) == WT_OK);
    if (peer.kind == 2) {
      CHECK(peer.id == dst);
      break;
    }
    wt_peer_t back;
    CHECK(peer.kind == 1 && wt_peer(r, peer.id, peer.port, &back) == WT_OK);
    CHECK(back.kind == 1 && back.id == at && back.port == port);
    at = peer.id;
  }
  CHECK((int)count == planned);
  return planned;
}

int main(void) {
  char error[256], name[64];
  wt_routing *r = wt_open_text(FABRIC, 1, 0, error, sizeof error);
  if (!r) fprintf(stderr, "%s\n", error);
  CHECK(r != NULL);
  CHECK(wt_hosts(r) == 16 && wt_nics(r) == 16 && wt_planes(r) == 1);
  CHECK(wt_switches(r) == 6 && wt_links(r) == 48 && wt_ports(r, 0) == 6);

  int via[2] = {0, 0};
  for (uint32_t src = 0; src < 16; src++)
    for (uint32_t dst = 0; dst < 16; dst++)
      for (uint32_t entropy = 0; entropy < 8 && src != dst; entropy++) {
        uint64_t hash = wt_flow_hash(1, src, dst, entropy);
        CHECK(walk(r, src, dst, hash) == (src / 4 == dst / 4 ? 2 : 4));
        if (src / 4 != dst / 4) {
          uint32_t links[4];
          wt_path(r, src, dst, hash, links, 4);
          wt_link_name(r, links[2], name, sizeof name);
          via[strncmp(name, "spine0", 6) != 0]++;
        }
      }
  /* 1,536 flows over two spines: five standard deviations are 98. */
  CHECK(via[0] + via[1] == 1536 && abs(via[0] - 768) < 98);

  /* Consecutive source ports alternate between the spines by their lowest bit; the default family is wt_flow_hash. */
  int by_xor[2] = {0, 0};
  for (uint32_t entropy = 0; entropy < 64; entropy++) {
    uint64_t hash = wt_flow_hash_by(WT_HASH_XOR, 0, 1, 0, 9, entropy);
    uint32_t links[4];
    CHECK(walk(r, 0, 9, hash) == 4 && wt_path(r, 0, 9, hash, links, 4) == 4);
    wt_link_name(r, links[2], name, sizeof name);
    by_xor[strncmp(name, "spine0", 6) != 0]++;
    CHECK(abs(by_xor[0] - by_xor[1]) <= 1);
    CHECK(wt_flow_hash_by(WT_HASH_MIXED, 1, 1, 0, 9, entropy) == wt_flow_hash(1, 0, 9, entropy));
    CHECK(wt_flow_hash_by(WT_HASH_CRC16, 0, 1, 0, 9, entropy) != wt_flow_hash_by(WT_HASH_CRC32, 0, 1, 0, 9, entropy));
  }
  CHECK(by_xor[0] == 32 && by_xor[1] == 32);

  wt_link_t link;
  CHECK(wt_link(r, 0, &link) == WT_OK && link.rate_bps == 100000000000ull && link.propagation_ps == 10000);

  /* The cable from leaf 0 to spine 0 fails: every flow of the leaf takes the other spine. */
  uint32_t spine = 4, port = 0, cable, state = 0, ports[4];
  wt_peer_t peer;
  CHECK(wt_peer(r, spine, port, &peer) == WT_OK && peer.kind == 1 && peer.id == 0);
  CHECK(wt_out_link(r, spine, port, &cable) == WT_OK);
  CHECK(wt_link_name(r, cable, name, sizeof name) == (int)strlen("spine0 -> leaf0") + 1);
  CHECK(strcmp(name, "spine0 -> leaf0") == 0);
  wt_routing *other = wt_clone(r);
  CHECK(wt_fail_cable(r, cable) == WT_OK);
  CHECK(wt_equal_cost(r, 0, 15, 0, &state, ports, 4) == 1);
  /* A far leaf does not know yet; spine 0 does, and has nowhere to go. */
  CHECK(wt_equal_cost(r, 3, 0, 0, &state, ports, 4) == 2);
  CHECK(wt_next_hop(r, spine, 0, 0, 1, &state, &port) == WT_BLACKHOLE);
  CHECK(wt_converge(r) == WT_OK);
  CHECK(wt_equal_cost(r, 3, 0, 0, &state, ports, 4) == 1);
  CHECK(wt_next_hop(r, spine, 0, 0, 1, &state, &port) == WT_DETOUR);
  CHECK(wt_equal_cost(other, 3, 0, 0, &state, ports, 4) == 2);
  /* Without the other spine too, leaf 0 is cut off. */
  CHECK(wt_fail_switch(r, 5) == WT_OK && wt_converge(r) == WT_OK);
  CHECK(wt_path(r, 0, 15, 7, NULL, 0) == WT_UNREACHABLE);
  CHECK(wt_recover_switch(r, 5) == WT_OK && wt_recover_cable(r, cable) == WT_OK && wt_converge(r) == WT_OK);
  CHECK(walk(r, 0, 15, 7) == 4);

  /* What is wrong is said, not crashed on. */
  CHECK(wt_next_hop(r, 6, 0, 0, 1, &state, &port) == WT_INVALID);
  CHECK(wt_next_hop(r, 0, 16, 0, 1, &state, &port) == WT_INVALID);
  CHECK(wt_next_hop(r, 0, 0, 0, 1, NULL, &port) == WT_INVALID);
  CHECK(wt_next_hop(NULL, 0, 0, 0, 1, &state, &port) == WT_INVALID);
  CHECK(wt_link_name(r, 48, name, sizeof name) == WT_INVALID);
  CHECK(wt_open_text("shape: clos\nhosts: 16\n", 1, 0, error, sizeof error) == NULL);
  CHECK(strstr(error, "`host` is missing") != NULL);
  CHECK(wt_open("no-such-file.yaml", 1, 0, error, 16) == NULL && strlen(error) == 15);
  wt_close(other);
  wt_close(r);
  wt_close(NULL);
  puts("routed by rule");
  return 0;
}
