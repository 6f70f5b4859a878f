/*
 * Routing by rule for simulators written in C and C++.
 *
 * A fabric is described by a topology file (the one that `windtunnel topology` reads) and set up in microseconds: no
 * routing tables are computed, whatever its size. A switch is asked for a packet's next port by number; the answer takes
 * a few instructions. All numbers are dense from 0: hosts, NICs (host-major), planes, switches, ports of a switch, links
 * (directed; a cable is two).
 *
 *   char error[512];
 *   wt_routing *r = wt_open("fabric.yaml", 1, 0, error, sizeof error);
 *   uint64_t hash = wt_flow_hash(seed, src, dst, entropy);
 *   int plane = wt_plane(r, src, dst, hash);
 *   uint32_t at, in;
 *   wt_attachment(r, src, plane, &at, &in);
 *   uint32_t state = wt_enter(r, at, dst, plane, hash, NULL), port;
 *   while (wt_next_hop(r, at, dst, plane, hash, &state, &port) >= 0) { ... }
 *
 * A handle is used by one thread at a time; wt_clone makes one for another thread. Functions return WT_INVALID for a null
 * pointer or a number out of range. Link with -lwindtunnel_routing (shared), or with the static library and the system
 * libraries that `rustc --print native-static-libs` names (on Linux: -lpthread -ldl -lm).
 */
#ifndef WINDTUNNEL_ROUTING_H
#define WINDTUNNEL_ROUTING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Done; the next hop is on a shortest legal path. */
#define WT_OK 0
/* The next hop is on a detour that the rule does not know, because no legal path is left. */
#define WT_DETOUR 1
/* A null pointer or a number out of range. */
#define WT_INVALID (-1)
/* No path at all, or only one that is forbidden. */
#define WT_UNREACHABLE (-2)
/* Every next hop is dead, and the fabric does not know yet (see wt_converge). */
#define WT_BLACKHOLE (-3)

/* A fabric with its faults. */
typedef struct wt_routing wt_routing;

/* What a port is cabled to. */
typedef struct {
  int32_t kind;  /* 0 nothing, 1 a switch, 2 a NIC */
  uint32_t id;   /* switch or NIC */
  uint32_t port; /* port of the switch, or plane of the NIC */
} wt_peer_t;

/* A directed link. */
typedef struct {
  uint64_t rate_bps;
  uint64_t latency_ps;     /* propagation, and the pipeline delay of the switch at the far end */
  uint64_t propagation_ps; /* propagation alone */
  double loss;             /* share of packets lost at random, 0 to 1 */
} wt_link_t;

/*
 * Sets up the topology of a file, or of a text. `detour` 0: pairs without a legal path are unreachable, 1: they take an
 * illegal one. `weighted` 1: equal-cost ports are chosen in proportion to the paths that survive behind them. On bad
 * input returns NULL and writes file, place, what was expected and a hint to `error` (cut to `size` bytes).
 */
wt_routing *wt_open(const char *path, int32_t detour, int32_t weighted, char *error, size_t size);
wt_routing *wt_open_text(const char *text, int32_t detour, int32_t weighted, char *error, size_t size);
/* Another handle with the same fabric and the faults of now, for another thread; NULL for NULL. */
wt_routing *wt_clone(wt_routing *r);
void wt_close(wt_routing *r);

/* Counts; 0 for NULL. */
uint32_t wt_hosts(wt_routing *r);
uint32_t wt_nics(wt_routing *r);
uint32_t wt_planes(wt_routing *r);
uint32_t wt_switches(wt_routing *r);
uint32_t wt_links(wt_routing *r);
/* Ports of a switch, cabled or not. */
uint32_t wt_ports(wt_routing *r, uint32_t sw);

/* The far end of a port. */
int32_t wt_peer(wt_routing *r, uint32_t sw, uint32_t port, wt_peer_t *peer);
/* Switch and port that a NIC hangs on in a plane. */
int32_t wt_attachment(wt_routing *r, uint32_t nic, uint32_t plane, uint32_t *sw, uint32_t *port);
/* The link from a NIC into a plane; the link that leaves a port (WT_INVALID without a cable). */
int32_t wt_nic_link(wt_routing *r, uint32_t nic, uint32_t plane, uint32_t *link);
int32_t wt_out_link(wt_routing *r, uint32_t sw, uint32_t port, uint32_t *link);
int32_t wt_link(wt_routing *r, uint32_t link, wt_link_t *out);
/* Names, cut to `size` bytes with the final zero; return the bytes that the whole name needs. */
int32_t wt_link_name(wt_routing *r, uint32_t link, char *buffer, size_t size);
int32_t wt_switch_name(wt_routing *r, uint32_t sw, char *buffer, size_t size);

/* The hash of a flow: every choice among equal-cost ports is a function of it and of the switch. */
uint64_t wt_flow_hash(uint64_t seed, uint32_t src_nic, uint32_t dst_nic, uint32_t entropy);
/*
 * The same by another family of hashes (`load_balancer: {ecmp: {hash: …}}`), of the five-tuple of a queue pair of RoCEv2. Consecutive
 * entropies are consecutive source ports. `switch_seeds`: 0 if switches of all tiers hash alike. WT_HASH_MIXED with seeds is
 * wt_flow_hash. A number that is no family counts as WT_HASH_MIXED.
 */
enum { WT_HASH_MIXED = 0, WT_HASH_CRC16 = 1, WT_HASH_CRC32 = 2, WT_HASH_XOR = 3 };
uint64_t wt_flow_hash_by(
    uint32_t family, int32_t switch_seeds, uint64_t seed, uint32_t src_nic, uint32_t dst_nic, uint32_t entropy);
/* The plane that a flow takes, or WT_UNREACHABLE. */
int32_t wt_plane(wt_routing *r, uint32_t src_nic, uint32_t dst_nic, uint64_t hash);
/*
 * What a packet carries as it enters the fabric at switch `at`: 0, or where a rule that leaves the shortest path on
 * purpose (Valiant, UGAL-L, one detour) sends it first. `queues`: bytes waiting at each port of `at`, or NULL.
 */
uint32_t wt_enter(wt_routing *r, uint32_t at, uint32_t dst_nic, uint32_t plane, uint64_t hash, const uint64_t *queues);
/* The port that a packet takes at `at`; `state` is what it carries, kept up to date. WT_OK, WT_DETOUR or an error. */
int32_t wt_next_hop(wt_routing *r, uint32_t at, uint32_t dst_nic, uint32_t plane, uint64_t hash, uint32_t *state,
                    uint32_t *port);
/* The ports that are equally good: writes up to `capacity` of them, returns how many there are. */
int32_t wt_equal_cost(wt_routing *r, uint32_t at, uint32_t dst_nic, uint32_t plane, uint32_t *state, uint32_t *ports,
                      uint32_t capacity);
/* The links of a flow's path, NIC to NIC: writes up to `capacity`, returns how many there are. */
int32_t wt_path(wt_routing *r, uint32_t src_nic, uint32_t dst_nic, uint64_t hash, uint32_t *links, uint32_t capacity);

/*
 * Faults. A cable fails in both directions, given by either of its links. The switches at its ends avoid it at once; the
 * others from wt_converge on.
 */
int32_t wt_fail_cable(wt_routing *r, uint32_t link);
int32_t wt_recover_cable(wt_routing *r, uint32_t link);
int32_t wt_fail_switch(wt_routing *r, uint32_t sw);
int32_t wt_recover_switch(wt_routing *r, uint32_t sw);
int32_t wt_converge(wt_routing *r);

#ifdef __cplusplus
}
#endif

#endif
